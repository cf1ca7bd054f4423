/** The same attacks, by a guest that speaks through the rings. */
process.env['VGPU_TEST_OVER'] = 'ring';

await import('./attack_host.test.js');
await import('./attack_code.test.js');

export {};

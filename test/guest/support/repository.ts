import { fileURLToPath } from 'node:url';

/** The checkout's root, from dist/test/guest/support/. */
export const repository = fileURLToPath(new URL('../../../../', import.meta.url)).replace(/\/$/, '');

import { describeCases } from '../../case_programs.js';

describeCases('arrays, textures and surfaces', {
  texture_calls: {
    describes: 'arrays say what they were made as',
    bad_requests: 'arrays that cannot be are refused, and formats that are not carried by their own result',
    counts_memory: 'arrays count as device memory, and give it back',
    copies: 'boxes are copied between arrays, memory and the program',
    lines: 'bytes are copied from and to arrays of one dimension',
    mipmaps: 'levels of a mipmapped array are arrays of their own size',
    textures: 'textures read arrays and memory, and say what they were made of',
    linear_integers: 'a linear filter does not change what is read as integers',
    longer:
      'a texture without rows may be described longer than its memory, and what lies behind reads as zero',
    views: 'a texture may be one level of several',
    surfaces: 'surfaces are written by kernels',
    made_up: 'an object that a kernel makes up is an illegal address for good',
    destroyed: 'so is one that was destroyed',
    references: 'references of a module stand for what is bound to them',
    graphs: 'captures and nodes copy from and to arrays',
  },
});

// One message of 64 bytes a thread.
__constant__ unsigned round_words[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

__device__ unsigned rotate(unsigned x, int n) {
  return x >> n | x << (32 - n);
}

__device__ void compress(unsigned *state, const unsigned *block) {
  unsigned w[64];
  for (int i = 0; i < 16; i++) w[i] = block[i];
  for (int i = 16; i < 64; i++) {
    unsigned a = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
    unsigned b = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + a + w[i - 7] + b;
  }
  unsigned s[8];
  for (int i = 0; i < 8; i++) s[i] = state[i];
  for (int i = 0; i < 64; i++) {
    unsigned e = rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25);
    unsigned one = s[7] + e + ((s[4] & s[5]) ^ (~s[4] & s[6])) + round_words[i] + w[i];
    unsigned a = rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22);
    unsigned two = a + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
    for (int k = 7; k > 0; k--) s[k] = s[k - 1];
    s[4] += one;
    s[0] = one + two;
  }
  for (int i = 0; i < 8; i++) state[i] += s[i];
}

extern "C" __global__ void sha256(const unsigned *messages, unsigned *digests, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  unsigned block[16];
  for (int k = 0; k < 16; k++) block[k] = __byte_perm(messages[i * 16 + k], 0, 0x0123);
  compress(state, block);
  for (int k = 0; k < 16; k++) block[k] = 0;
  block[0] = 0x80000000;
  block[15] = 512;
  compress(state, block);
  for (int k = 0; k < 8; k++) digests[i * 8 + k] = __byte_perm(state[k], 0, 0x0123);
}

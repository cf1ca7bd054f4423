/* Products of small matrices, row by row; included by alu.c. */

static void matrix_f32(float *c, const float *a, const float *b, uint32_t rows, uint32_t columns,
                       uint32_t depth) {
  for (uint32_t i = 0; i < rows; i++) {
    for (uint32_t j = 0; j < columns; j += 8) {
      float sum[8];
      for (int t = 0; t < 8; t++) sum[t] = 0;
      for (uint32_t k = 0; k < depth; k++) {
        const float x = a[i * depth + k];
        const float *row = b + k * columns + j;
        for (int t = 0; t < 8; t++) sum[t] += x * row[t];
      }
      for (int t = 0; t < 8; t++) c[i * columns + j + (uint32_t)t] += sum[t];
    }
  }
}

static void matrix_s32(int32_t *c, const int32_t *a, const int32_t *b, uint32_t rows, uint32_t columns,
                       uint32_t depth) {
  for (uint32_t i = 0; i < rows; i++) {
    for (uint32_t j = 0; j < columns; j += 8) {
      uint32_t sum[8];
      for (int t = 0; t < 8; t++) sum[t] = (uint32_t)c[i * columns + j + (uint32_t)t];
      for (uint32_t k = 0; k < depth; k++) {
        const int32_t x = a[i * depth + k];
        const int32_t *row = b + k * columns + j;
        for (int t = 0; t < 8; t++) sum[t] += (uint32_t)(x * row[t]);
      }
      for (int t = 0; t < 8; t++) c[i * columns + j + (uint32_t)t] = (int32_t)sum[t];
    }
  }
}

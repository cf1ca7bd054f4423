#include "host/backend/software/ptx/compile/emit.h"

/* Numbers of 32 lanes, in each half 0, step, 2 step, ... */
static void say_steps(struct ptx_text *t, uint32_t bits, uint32_t step) {
  ptx_say(t, "<");
  for (uint32_t i = 0; i < PTX_LANES; i++) ptx_say(t, "%si%u %u", i == 0 ? "" : ", ", bits, i % 16 * step);
  ptx_say(t, ">");
}

static void say_halves(struct ptx_text *t) {
  ptx_say(t, "<32 x i32> <");
  for (uint32_t i = 0; i < PTX_LANES; i++) ptx_say(t, "%si32 %u", i == 0 ? "" : ", ", i / 16 * 16);
  ptx_say(t, ">");
}

/*
 * An access whose lanes of each half are side by side or, for loads, at one place: the STRAIGHT of
 * alu_memory.h. It depends on the addresses in a way that LLVM computes once for several accesses with the
 * same register. The result is false if nothing was done.
 */
static void access(struct ptx_text *t, bool store, bool global, uint32_t a, uint32_t r) {
  uint32_t bytes = r / 8;
  ptx_say(t, "define internal i1 @%s%c%u_%u(ptr %%c, ", store ? "st" : "ld", global ? 'g' : 's', a, r);
  if (store) ptx_say(t, "<32 x i%u> %%value, ", r);
  else ptx_say(t, "ptr %%out, ");
  ptx_say(t, "<32 x i%u> %%a, i%u %%off, %s) alwaysinline nounwind {\n", a, a,
          global ? "ptr %region" : "ptr %memory, i64 %size");
  ptx_say(t,
          "%%low = extractelement <32 x i%u> %%a, i32 0\n%%high = extractelement <32 x i%u> %%a, i32 16\n"
          "%%b0 = insertelement <32 x i%u> poison, i%u %%low, i32 0\n"
          "%%b1 = insertelement <32 x i%u> %%b0, i%u %%high, i32 16\n"
          "%%bv = shufflevector <32 x i%u> %%b1, <32 x i%u> poison, ",
          a, a, a, a, a, a, a, a);
  say_halves(t);
  ptx_say(t, "\n%%diff = sub <32 x i%u> %%a, %%bv\n%%apart = xor <32 x i%u> %%diff, ", a, a);
  say_steps(t, a, bytes);
  ptx_say(t,
          "\n%%crooked = call i%u @llvm.vector.reduce.or.v32i%u(<32 x i%u> %%apart)\n"
          "%%side = icmp eq i%u %%crooked, 0\n",
          a, a, a, a);
  if (global)
    ptx_say(t, "%%base = load i64, ptr %%region\n%%sp = getelementptr i8, ptr %%region, i64 8\n"
               "%%size = load i64, ptr %%sp\n%%mp = getelementptr i8, ptr %%region, i64 16\n"
               "%%memory = load ptr, ptr %%mp\n");
  ptx_say(t, "%%f0 = add i%u %%low, %%off\n%%n0 = add i%u %%high, %%off\n%%al = or i%u %%f0, %%n0\n", a, a,
          a);
  ptx_say(t, "%%alm = and i%u %%al, %u\n%%aligned = icmp eq i%u %%alm, 0\n", a, bytes - 1, a);
  if (a == 32) ptx_say(t, "%%f = zext i32 %%f0 to i64\n%%n = zext i32 %%n0 to i64\n");
  else
    ptx_say(t, "%%f = sub i64 %%f0, %s\n%%n = sub i64 %%n0, %s\n", global ? "%base" : "0",
            global ? "%base" : "0");
  ptx_say(t, "br i1 %%side, label %%sides, label %%other\n");
  for (uint32_t one = 0; one < (store ? 1u : 2u); one++) {
    uint32_t end = one ? bytes : bytes * 16;
    if (one) {
      ptx_say(t,
              "other:\n%%apart0 = call i%u @llvm.vector.reduce.or.v32i%u(<32 x i%u> %%diff)\n"
              "%%same = icmp eq i%u %%apart0, 0\nbr i1 %%same, label %%ones, label %%no\n",
              a, a, a, a);
    }
    const char *n = one ? "1" : "0";
    ptx_say(t,
            "%s:\n%%room%s = icmp uge i64 %%size, %u\n%%lim%s = sub i64 %%size, %u\n"
            "%%fi%s = icmp ule i64 %%f, %%lim%s\n%%ni%s = icmp ule i64 %%n, %%lim%s\n"
            "%%x%s = and i1 %%room%s, %%aligned\n%%y%s = and i1 %%fi%s, %%ni%s\n%%z%s = and i1 %%x%s, %%y%s\n"
            "br i1 %%z%s, label %%do%s, label %%no\n"
            "do%s:\n%%p%s = getelementptr i8, ptr %%memory, i64 %%f\n"
            "%%q%s = getelementptr i8, ptr %%memory, i64 %%n\n",
            one ? "ones" : "sides", n, end, n, end, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n, n);
    if (store) {
      ptx_say(t, "%%v1 = shufflevector <32 x i%u> %%value, <32 x i%u> poison, <16 x i32> <", r, r);
      for (uint32_t i = 0; i < 16; i++) ptx_say(t, "%si32 %u", i == 0 ? "" : ", ", i);
      ptx_say(t, ">\n%%v2 = shufflevector <32 x i%u> %%value, <32 x i%u> poison, <16 x i32> <", r, r);
      for (uint32_t i = 0; i < 16; i++) ptx_say(t, "%si32 %u", i == 0 ? "" : ", ", i + 16);
      ptx_say(t, ">\nstore <16 x i%u> %%v1, ptr %%p0, align %u\nstore <16 x i%u> %%v2, ptr %%q0, align %u\n",
              r, bytes, r, bytes);
    } else if (one) {
      ptx_say(t, "%%e1 = load i%u, ptr %%p1, align %u\n%%e2 = load i%u, ptr %%q1, align %u\n", r, bytes, r,
              bytes);
      ptx_say(t,
              "%%i1 = insertelement <32 x i%u> poison, i%u %%e1, i32 0\n"
              "%%i2 = insertelement <32 x i%u> %%i1, i%u %%e2, i32 16\n"
              "%%i3 = shufflevector <32 x i%u> %%i2, <32 x i%u> poison, ",
              r, r, r, r, r, r);
      say_halves(t);
      ptx_say(t, "\nstore <32 x i%u> %%i3, ptr %%out, align 64\n", r);
    } else {
      ptx_say(t,
              "%%l1 = load <16 x i%u>, ptr %%p0, align %u\n%%l2 = load <16 x i%u>, ptr %%q0, align %u\n"
              "%%l3 = shufflevector <16 x i%u> %%l1, <16 x i%u> %%l2, <32 x i32> <",
              r, bytes, r, bytes, r, r);
      for (uint32_t i = 0; i < 32; i++) ptx_say(t, "%si32 %u", i == 0 ? "" : ", ", i);
      ptx_say(t, ">\nstore <32 x i%u> %%l3, ptr %%out, align 64\n", r);
    }
    ptx_say(t, "ret i1 true\n");
  }
  if (store) ptx_say(t, "other:\nbr label %%no\n");
  ptx_say(t, "no:\nret i1 false\n}\n");
}

/* Writes the lanes of %m to a place in the frame. */
static void put(struct ptx_text *t, uint32_t bits) {
  ptx_say(t,
          "define internal void @put%u(ptr %%to, <32 x i%u> %%v, i32 %%m) alwaysinline nounwind {\n"
          "%%old = load <32 x i%u>, ptr %%to, align 64\n%%l = bitcast i32 %%m to <32 x i1>\n"
          "%%new = select <32 x i1> %%l, <32 x i%u> %%v, <32 x i%u> %%old\n"
          "store <32 x i%u> %%new, ptr %%to, align 64\nret void\n}\n",
          bits, bits, bits, bits, bits, bits);
}

void ptx_emit_prelude(struct ptx_text *t) {
  static const uint32_t widths[3] = {16, 32, 64};
  for (uint32_t i = 0; i < 3; i++) {
    put(t, widths[i]);
    for (uint32_t store = 0; store < 2; store++) {
      access(t, store != 0, true, 64, widths[i]);
      access(t, store != 0, false, 64, widths[i]);
      access(t, store != 0, false, 32, widths[i]);
    }
  }
  ptx_say(t, "define internal void @put1(ptr %%to, i32 %%v, i32 %%m) alwaysinline nounwind {\n"
             "%%old = load i32, ptr %%to\n%%x = xor i32 %%old, %%v\n%%y = and i32 %%x, %%m\n"
             "%%new = xor i32 %%old, %%y\nstore i32 %%new, ptr %%to\nret void\n}\n");
  ptx_say(t, "declare i32 @llvm.vector.reduce.or.v32i32(<32 x i32>)\n"
             "declare i64 @llvm.vector.reduce.or.v32i64(<32 x i64>)\n"
             "declare <32 x float> @llvm.fma.v32f32(<32 x float>, <32 x float>, <32 x float>)\n"
             "declare <32 x double> @llvm.fma.v32f64(<32 x double>, <32 x double>, <32 x double>)\n"
             "declare <32 x float> @llvm.sqrt.v32f32(<32 x float>)\n"
             "declare <32 x double> @llvm.sqrt.v32f64(<32 x double>)\n");
}

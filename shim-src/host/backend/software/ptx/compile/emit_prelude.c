#include "host/backend/software/ptx/compile/emit.h"

/* Two values, each for the lanes of a half. */
static void halves(struct ptx_text *t, uint32_t bits) {
  ptx_say(t,
          "define internal <32 x i%u> @halves%u(i%u %%low, i%u %%high) alwaysinline nounwind {\n"
          "%%a = insertelement <32 x i%u> poison, i%u %%low, i32 0\n"
          "%%b = insertelement <32 x i%u> %%a, i%u %%high, i32 16\n"
          "%%r = shufflevector <32 x i%u> %%b, <32 x i%u> poison, <32 x i32> <",
          bits, bits, bits, bits, bits, bits, bits, bits, bits, bits);
  for (uint32_t i = 0; i < PTX_LANES; i++) ptx_say(t, "%si32 %u", i == 0 ? "" : ", ", i / 16 * 16);
  ptx_say(t, ">\nret <32 x i%u> %%r\n}\n", bits);
}

/* A text of LLVM, in which # is a number. */
static void fill(struct ptx_text *t, const char *text, uint32_t number) {
  for (;;) {
    int plain = 0;
    while (text[plain] != '\0' && text[plain] != '#') plain++;
    ptx_say(t, "%.*s", plain, text);
    if (text[plain] == 0) return;
    ptx_say(t, "%u", number);
    text += plain + 1;
  }
}
/* The constants 0 to 15 for the lanes of each half. */
static void count(struct ptx_text *t, uint32_t bits) {
  for (uint32_t i = 0; i < PTX_LANES; i++) ptx_say(t, "%si%u %u", i == 0 ? "" : ", ", bits, i % 16);
}

/* Functions of emit_memory.c for addresses of so many bits. */
static void addresses(struct ptx_text *t, uint32_t a, const char *how) {
  /* Lanes that do not access get the address of one that does. */
  fill(t, "define internal <32 x i#> @some#(<32 x i#> %a, i32 %m) ", a);
  fill(t, how, 0);
  fill(
      t,
      " nounwind {\n%i = call i32 @llvm.cttz.i32(i32 %m, i1 true)\n%o = extractelement <32 x i#> %a, i32 %i\n"
      "%x = call <32 x i#> @halves#(i# %o, i# %o)\n%l = bitcast i32 %m to <32 x i1>\n"
      "%r = select <32 x i1> %l, <32 x i#> %a, <32 x i#> %x\nret <32 x i#> %r\n}\n",
      a);
  /* Whether the lanes of each half have a constant step. Lane 1 usually shows that they have not. */
  fill(t, "define internal i1 @steps#(<32 x i#> %v, i# %step) ", a);
  fill(t, how, 0);
  fill(t,
       " nounwind {\n%o = extractelement <32 x i#> %v, i32 0\n%q = extractelement <32 x i#> %v, i32 1\n"
       "%s = sub i# %q, %o\n%t = icmp eq i# %s, %step\nbr i1 %t, label %yes, label %no\nno:\nret i1 false\n"
       "yes:\n%p = extractelement <32 x i#> %v, i32 16\n"
       "%x = call <32 x i#> @halves#(i# %o, i# %p)\n"
       "%b = call <32 x i#> @halves#(i# %step, i# %step)\n%c = mul <32 x i#> %b, <",
       a);
  count(t, a);
  fill(t,
       ">\n%d = add <32 x i#> %x, %c\n%e = icmp ne <32 x i#> %v, %d\n%f = bitcast <32 x i1> %e to i32\n"
       "%r = icmp eq i32 %f, 0\nret i1 %r\n}\n",
       a);
}

/*
 * Whether the places ((x + from) << shift) - origin of 32 lanes are in a range and aligned. They are written
 * relative to the lowest place >= 0 that any x can give, which is returned. Their lowest `turn` bits, before
 * the shift, must be zero: the rotation moves set bits to the top, where they exceed the limit.
 */
static void places(struct ptx_text *t, uint32_t a, const char *how) {
  const char *most = a == 32 ? "4294967295" : "-1";
  fill(t,
       "define internal {i1, i64} @anywhere#(ptr %out, <32 x i#> %x, i# %from, i64 %shift, i64 %origin, "
       "i# %turn, i64 %base, i64 %size, i64 %end, i64 %low) ",
       a);
  fill(t, how, 0);
  fill(t,
       " nounwind {\n%room = icmp uge i64 %size, %end\n%most = sub i64 %size, %end\n"
       "%before = icmp sle i64 %origin, 0\n%unit = shl i64 1, %shift\n%ones = sub i64 %unit, 1\n"
       "%up = add i64 %origin, %ones\n%up1 = lshr i64 %up, %shift\n"
       "%least = select i1 %before, i64 0, i64 %up1\n"
       "%least1 = shl i64 %least, %shift\n%first = sub i64 %least1, %origin\n"
       "%in = icmp ule i64 %first, %most\n%left = sub i64 %most, %first\n%count = lshr i64 %left, %shift\n",
       a);
  ptx_say(t,
          "%%fits = icmp ule i64 %%least, %s\n%%wide = lshr i64 %s, %%shift\n%%above = sub i64 %s, %%least\n",
          most, most, most);
  fill(t,
       "%m1 = call i64 @llvm.umin.i64(i64 %count, i64 %wide)\n"
       "%m2 = call i64 @llvm.umin.i64(i64 %m1, i64 %above)\n",
       a);
  fill(t,
       a == 32 ? "%m3 = trunc i64 %m2 to i#\n%l3 = trunc i64 %least to i#\n%s3 = trunc i64 %shift to i#\n"
               : "%m3 = add i# %m2, 0\n%l3 = add i# %least, 0\n%s3 = add i# %shift, 0\n",
       a);
  fill(t,
       "%m4 = lshr i# %m3, %turn\n%s = sub i# %from, %l3\n"
       "%y = call <32 x i#> @halves#(i# %s, i# %s)\n%z = add <32 x i#> %x, %y\n"
       "%v = call <32 x i#> @halves#(i# %s3, i# %s3)\n"
       "%o = shl <32 x i#> %z, %v\nstore <32 x i#> %o, ptr %out, align 64\n"
       "%m = call <32 x i#> @halves#(i# %m4, i# %m4)\n%k = call <32 x i#> @halves#(i# %turn, i# %turn)\n"
       "%t = call <32 x i#> @llvm.fshr.v32i#(<32 x i#> %z, <32 x i#> %z, <32 x i#> %k)\n"
       "%c = icmp ugt <32 x i#> %t, %m\n%b = bitcast <32 x i1> %c to i32\n%d = icmp eq i32 %b, 0\n"
       "%g0 = or i64 %base, %first\n%g = and i64 %g0, %low\n%h = icmp eq i64 %g, 0\n%i = and i1 %d, %h\n"
       "%r0 = and i1 %room, %i\n%r1 = and i1 %fits, %in\n%r2 = and i1 %r0, %r1\n"
       "%r3 = insertvalue {i1, i64} poison, i1 %r2, 0\n%r = insertvalue {i1, i64} %r3, i64 %first, 1\n"
       "ret {i1, i64} %r\n}\n",
       a);
}

/* Eight of 32 lanes, or two vectors as one. */
static void shuffle(struct ptx_text *t, const char *to, const char *type, uint32_t lanes, const char *a,
                    const char *b, uint32_t from, uint32_t count) {
  ptx_say(t, "%%%s = shufflevector <%u x %s> %%%s, <%u x %s> %s, <%u x i32> <", to, lanes, type, a, lanes,
          type, b, count);
  for (uint32_t i = 0; i < count; i++) ptx_say(t, "%si32 %u", i == 0 ? "" : ", ", from + i);
  ptx_say(t, ">\n");
}

/*
 * Returns the same floats, hidden from LLVM's analyses. `llvm.arithmetic.fence` would not hide which signs
 * and zeros a value can have.
 */
static void unknown(struct ptx_text *t, uint32_t bits) {
  const bool wide = ptx_emit_has_avx512();
  const char *type = bits == 32 ? "float" : "double", *form = wide ? "=v,0" : "=x,0";
  uint32_t lanes = (wide ? 512 : 256) / bits, count = PTX_LANES / lanes, next = count;
  ptx_say(t, "define internal <32 x %s> @unknown%u(<32 x %s> %%a) alwaysinline nounwind {\n", type, bits,
          type);
  for (uint32_t k = 0; k < count; k++) {
    char part[8];
    snprintf(part, sizeof part, "p%u", k);
    shuffle(t, part, type, PTX_LANES, "a", "poison", k * lanes, lanes);
    ptx_say(t, "%%q%u = call <%u x %s> asm \"\", \"%s\"(<%u x %s> %%p%u)\n", k, lanes, type, form, lanes,
            type, k);
  }
  for (uint32_t first = 0; lanes < PTX_LANES; lanes *= 2) {
    for (const uint32_t end = next; first < end; first += 2) {
      char to[16], left[16], right[16];
      snprintf(to, sizeof to, "q%u", next++);
      snprintf(left, sizeof left, "q%u", first);
      snprintf(right, sizeof right, "%%q%u", first + 1);
      shuffle(t, to, type, lanes, left, right, 0, 2 * lanes);
    }
  }
  ptx_say(t, "ret <32 x %s> %%q%u\n}\n", type, next - 1);
}

/* 32 halves to floats and back, to the nearest: eight by one instruction. LLVM would convert them one by one.
 */
static void convert(struct ptx_text *t, bool widen) {
  const char *from = widen ? "i16" : "float", *to = widen ? "float" : "i16";
  ptx_say(t, "define internal <32 x %s> @%s(<32 x %s> %%a) alwaysinline nounwind {\n", to,
          widen ? "widen" : "narrow", from);
  for (uint32_t k = 0; k < 4; k++) {
    char part[8];
    snprintf(part, sizeof part, "p%u", k);
    shuffle(t, part, from, 32, "a", "poison", k * 8, 8);
    if (widen)
      ptx_say(
          t, "%%h%u = bitcast <8 x i16> %%p%u to <8 x half>\n%%q%u = fpext <8 x half> %%h%u to <8 x float>\n",
          k, k, k, k);
    else
      ptx_say(t,
              "%%h%u = call <8 x i16> @llvm.x86.vcvtps2ph.256(<8 x float> %%p%u, i32 0)\n%%q%u = freeze <8 x "
              "i16> %%h%u\n",
              k, k, k, k);
  }
  shuffle(t, "r0", to, 8, "q0", "%q1", 0, 16);
  shuffle(t, "r1", to, 8, "q2", "%q3", 0, 16);
  shuffle(t, "r", to, 16, "r0", "%r1", 0, 32);
  ptx_say(t, "ret <32 x %s> %%r\n}\n", to);
}

/*
 * Reads or writes 32 places in a range, one after the other. For loads, that is faster than a gather
 * instruction: on AMD's Zen 4, 10 ns instead of 16. Inlined into each access, it doubles LLVM's time. Halves
 * and bytes are not read as parts of words, because a store of one alone could not be forwarded to that load.
 */
static void anywhere(struct ptx_text *t, uint32_t bits, uint32_t place_bits, bool store) {
  if (store)
    ptx_say(t, "define internal void @scatter%u_%u(ptr %%m, ptr %%to, <32 x i%u> %%v)", bits, place_bits,
            bits);
  else ptx_say(t, "define internal <32 x i%u> @gather%u_%u(ptr %%m, ptr %%to)", bits, bits, place_bits);
  ptx_say(t, " noinline nounwind {\n");
  for (uint32_t i = 0; i < PTX_LANES; i++) {
    char before[8] = "poison";
    if (i > 0) snprintf(before, sizeof before, "%%v%u", i - 1);
    ptx_say(t,
            "%%p%u = getelementptr i%u, ptr %%to, i64 %u\n%%n%u = load i%u, ptr %%p%u\n"
            "%%o%u = %s i%u %%n%u to i64\n%%a%u = getelementptr i8, ptr %%m, i64 %%o%u\n",
            i, place_bits, i, i, place_bits, i, i, place_bits == 32 ? "zext" : "bitcast", place_bits, i, i,
            i);
    if (store)
      ptx_say(t, "%%e%u = extractelement <32 x i%u> %%v, i32 %u\nstore i%u %%e%u, ptr %%a%u, align 1\n", i,
              bits, i, bits, i, i);
    else
      ptx_say(
          t, "%%e%u = load i%u, ptr %%a%u, align 1\n%%v%u = insertelement <32 x i%u> %s, i%u %%e%u, i32 %u\n",
          i, bits, i, i, bits, before, bits, i, i);
  }
  fill(t, store ? "ret void\n}\n" : "ret <32 x i#> %v31\n}\n", bits);
}
void ptx_emit_anywhere(struct ptx_text *t, uint32_t set, bool store) {
  for (uint32_t bits = 8; bits <= 64; bits *= 2) {
    if ((set & bits) != 0) anywhere(t, bits, 64, store);
    if ((set & bits << 4) != 0) anywhere(t, bits, 32, store);
  }
}

#define MASKED(type) "declare void @llvm.masked.store.v#" type ".p0(<# x " type ">, ptr, i32, <# x i1>)\n"
void ptx_emit_prelude(struct ptx_text *t, bool small) {
  static const uint32_t widths[3] = {16, 32, 64};
  for (uint32_t i = 0; i < 3; i++) halves(t, widths[i]);
  unknown(t, 32);
  unknown(t, 64);
  convert(t, true);
  convert(t, false);
  const char *how = small ? "noinline" : "alwaysinline";
  addresses(t, 32, how);
  addresses(t, 64, how);
  places(t, 32, how);
  places(t, 64, how);
  /* Whether two places, with `end` bytes behind each, are in a range and aligned. */
  ptx_say(
      t,
      "define internal i1 @within(i64 %%f, i64 %%n, i64 %%base, i64 %%size, i64 %%end, i64 %%low) "
      "alwaysinline "
      "nounwind {\n%%room = icmp uge i64 %%size, %%end\n%%most = sub i64 %%size, %%end\n"
      "%%a = icmp ule i64 %%f, %%most\n%%b = icmp ule i64 %%n, %%most\n%%c = or i64 %%f, %%n\n"
      "%%d = or i64 %%c, %%base\n%%e = and i64 %%d, %%low\n%%g = icmp eq i64 %%e, 0\n%%h = and i1 %%a, %%b\n"
      "%%i = and i1 %%room, %%g\n%%r = and i1 %%h, %%i\nret i1 %%r\n}\n");
  ptx_say(t, "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)\n"
             "declare i64 @llvm.umin.i64(i64, i64)\n"
             "declare i32 @llvm.umax.i32(i32, i32)\n"
             "declare <32 x i64> @llvm.fshr.v32i64(<32 x i64>, <32 x i64>, <32 x i64>)\n"
             "declare i32 @llvm.cttz.i32(i32, i1)\n"
             "declare i32 @llvm.ctlz.i32(i32, i1)\n"
             "declare <32 x i32> @llvm.ctpop.v32i32(<32 x i32>)\n"
             "declare <32 x i32> @llvm.fshl.v32i32(<32 x i32>, <32 x i32>, <32 x i32>)\n"
             "declare <32 x i32> @llvm.fshr.v32i32(<32 x i32>, <32 x i32>, <32 x i32>)\n"
             "declare <8 x i16> @llvm.x86.vcvtps2ph.256(<8 x float>, i32)\n"
             "declare <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16>, <16 x i16>)\n"
             "declare <32 x float> @llvm.fma.v32f32(<32 x float>, <32 x float>, <32 x float>)\n"
             "declare <32 x float> @llvm.sqrt.v32f32(<32 x float>)\n");
  fill(t, MASKED("i32") MASKED("i64"), 16);
  fill(t, MASKED("i32") MASKED("i64"), 32);
  fill(t, MASKED("i32"), 64);
}

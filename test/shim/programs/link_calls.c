/* cuLink*: several texts become one module. */
#include <elf.h>

#include "check.h"

enum {
  CUBIN = 0,
  PTX = 1,
  FATBIN = 2,
  OBJECT = 3,
  LIBRARY = 4,
  NVVM = 5,
  INVALID_IMAGE = 200,
  INVALID_PTX = 218,
  UNKNOWN = 999
};

static const char main_text[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    "// a comment with .extern .func nothing;\n"
    ".file 1 \"a.cu\"\n"
    ".extern .func (.param .b32 r) twice (.param .b32 x) ;\n"
    ".extern .global .align 4 .u32 base;\n"
    ".global .align 4 .u32 own = 5;\n"
    ".func (.param .b32 r) helper(.param .b32 x) { .reg .b32 %a;\n"
    " .loc 1 3 1\n ld.param.b32 %a, [x]; add.u32 %a, %a, 1; st.param.b32 [r], %a; ret; }\n"
    ".visible .entry run(.param .u64 to)\n.maxntid 64\n.pragma \"nounroll\";\n{\n"
    ".reg .b64 %p; .reg .b32 %v, %w;\n"
    "ld.param.u64 %p, [to]; cvta.to.global.u64 %p, %p;\n"
    "ld.global.u32 %v, [own];\n"
    "{ .param .b32 q; .param .b32 s; st.param.b32 [q], %v; call.uni (s), helper, (q); ld.param.b32 %v, [s]; "
    "}\n"
    "{ .param .b32 q; .param .b32 s; st.param.b32 [q], %v; call.uni (s), twice, (q); ld.param.b32 %v, [s]; "
    "}\n"
    "ld.global.u32 %w, [base]; add.u32 %v, %v, %w;\n"
    "st.global.u32 [%p], %v; ret; }\n";

/* Defines names that the other text defines, too: `own` and `helper`. */
static const char library_text[] =
    ".version 7.0\n.target sm_60, debug\n.address_size 64\n"
    ".file 1 \"b.cu\"\n"
    ".visible .global .align 4 .u32 base = 1000;\n"
    ".global .align 4 .u32 own = 70;\n"
    ".func (.param .b32 r) helper(.param .b32 x) { .reg .b32 %a; .reg .b32 %b;\n"
    "ld.param.b32 %a, [x]; ld.global.u32 %b, [own]; add.u32 %a, %a, %b; st.param.b32 [r], %a; ret; }\n"
    ".visible .func (.param .b32 r) twice(.param .b32 x) .pragma \"nounroll\";\n{ .reg .b32 %a;\n"
    "ld.param.b32 %a, [x];\n"
    "{ .param .b32 q; .param .b32 s; st.param.b32 [q], %a; call.uni (s), helper, (q); ld.param.b32 %a, [s]; "
    "}\n"
    "shl.b32 %a, %a, 1; st.param.b32 [r], %a; ret; }\n"
    ".section .debug_str { .b8 1 }\n";

static char log_text[512];
static int option_names[] = {5, 6};
static void *option_values[] = {log_text, (void *)sizeof log_text};

static void *new_link(void) {
  void *link = NULL;
  log_text[0] = '\0';
  option_values[1] = (void *)sizeof log_text;
  MUST(CALL(cuLinkCreate_v2, (unsigned, int *, void **, void **), 2, option_names, option_values, &link));
  return link;
}

static int add(void *link, int type, const char *text, const char *name) {
  return CALL(cuLinkAddData_v2, (void *, int, const void *, size_t, const char *, unsigned, int *, void **),
              link, type, text, strlen(text) + 1, name, 0, NULL, NULL);
}

static int add_bytes(void *link, int type, const void *bytes, size_t size, const char *name) {
  return CALL(cuLinkAddData_v2, (void *, int, const void *, size_t, const char *, unsigned, int *, void **),
              link, type, bytes, size, name, 0, NULL, NULL);
}

static int complete(void *link, void **image, size_t *size) {
  return CALL(cuLinkComplete, (void *, void **, size_t *), link, image, size);
}

/*
 * True on the software device, whose linker and texts are this project's. On a GPU the driver links: the
 * results must compute the same, but their form and its errors are NVIDIA's.
 */
static bool ours(void) {
  char name[256] = "";
  MUST(CALL(cuDeviceGetName, (char *, int, int), name, sizeof name, 0));
  return strstr(name, "(simulated") != NULL;
}

/* Returns the PTX text of a linked image: an ELF file for CUDA. */
static const char *text_of(const void *image, size_t size) {
  const unsigned char *bytes = image;
  Elf64_Ehdr header;
  TRUE(size > sizeof header);
  memcpy(&header, bytes, sizeof header);
  IS(0, memcmp(header.e_ident, "\177ELF\2\1\1", 7));
  IS(EM_CUDA, header.e_machine);
  TRUE(header.e_shoff + (uint64_t)header.e_shnum * sizeof(Elf64_Shdr) <= size);
  for (unsigned i = 0; i < header.e_shnum; i++) {
    Elf64_Shdr section;
    memcpy(&section, bytes + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type == SHT_NOBITS) continue;
    TRUE(section.sh_offset <= size && section.sh_size <= size - section.sh_offset);
    const char *found = memmem(bytes + section.sh_offset, section.sh_size, ".version", 8);
    if (found != NULL) return found;
  }
  TRUE(!"no section has the text");
  return "";
}

static unsigned run_module(const void *image) {
  void *module = NULL, *function = NULL;
  devptr memory = check_alloc(4);
  unsigned value = 0;
  void *parameters[] = {&memory};
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, image));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "run"));
  OK(CALL(cuLaunchKernel,
          (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
           void **),
          function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), &value, memory, 4));
  return value;
}

/* The same with the calls of newer runtimes. */
static unsigned run_library(const void *image) {
  void *library = NULL, *kernel = NULL;
  devptr memory = check_alloc(4);
  unsigned value = 0;
  void *parameters[] = {&memory};
  MUST(CALL(cuLibraryLoadData, (void **, const void *, void *, void **, unsigned, void *, void **, unsigned),
            &library, image, NULL, NULL, 0, NULL, NULL, 0));
  MUST(CALL(cuLibraryGetKernel, (void **, void *, const char *), &kernel, library, "run"));
  OK(CALL(cuLaunchKernel,
          (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
           void **),
          kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), &value, memory, 4));
  OK(CALL(cuLibraryUnload, (void *), library));
  return value;
}

/* own + 1, + the library's 70, twice, + base. */
enum { RESULT = (5 + 1 + 70) * 2 + 1000 };

static void joins(void) {
  const char *orders[2][2] = {{main_text, library_text}, {library_text, main_text}};
  for (int i = 0; i < 2; i++) {
    void *link = new_link(), *image = NULL, *again = NULL;
    size_t size = 0;
    OK(add(link, PTX, orders[i][0], "first"));
    OK(add(link, PTX, orders[i][1], "second"));
    OK(complete(link, &image, &size));
    const char *text = ours() ? text_of(image, size) : ".version 7.0 sm_60";
    TRUE(strstr(text, ".loc") == NULL && strstr(text, ".file") == NULL && strstr(text, "debug_str") == NULL);
    TRUE(strstr(text, ".version 7.0") != NULL && strstr(text, ".version 6.0") == NULL);
    TRUE(strstr(text, "sm_60") != NULL && strstr(text, "sm_50") == NULL);
    TRUE(strstr(text, ".extern .func") == NULL);
    IS(RESULT, run_module(image));
    IS(RESULT, run_library(image));
    char *copy = (char *)check_bytes(size);
    memcpy(copy, image, size);
    OK(complete(link, &again, NULL));
    TRUE(again == image);
    IS(INVALID_VALUE, add(link, PTX, main_text, "third")); /* the link is complete */
    OK(CALL(cuLinkDestroy, (void *), link));
    IS(RESULT, run_module(copy)); /* PyCUDA and numba keep an image longer than the link */
  }
}

static void weak_and_shared(void) {
  static const char head[] = ".version 7.0\n.target sm_50\n.address_size 64\n";
  char first[2048], second[2048];
  snprintf(first, sizeof first,
           "%s.weak .global .u32 value = 3;\n.extern .shared .align 4 .b8 room[];\n"
           ".visible .entry run(.param .u64 to) { .reg .b64 %%p; .reg .b32 %%v;\n"
           "ld.param.u64 %%p, [to]; cvta.to.global.u64 %%p, %%p; ld.global.u32 %%v, [value];\n"
           "st.global.u32 [%%p], %%v; ret; }\n",
           head);
  snprintf(second, sizeof second,
           "%s.visible .global .u32 value = 4;\n.extern .shared .align 4 .b8 room[];\n"
           ".visible .entry other() { ret; }\n",
           head);
  void *link = new_link(), *image = NULL;
  OK(add(link, PTX, first, "first"));
  OK(add(link, PTX, second, "second"));
  OK(complete(link, &image, NULL));
  IS(4, run_module(image)); /* the strong one */
  OK(CALL(cuLinkDestroy, (void *), link));
}

static void one_input(void) {
  static const char text[] =
      ".version 7.0\n.target sm_50\n.address_size 64\n.visible .global .u32 seven = 7;\n"
      ".visible .entry run(.param .u64 to) { .reg .b64 %p; .reg .b32 %v;\n"
      "ld.param.u64 %p, [to]; ld.global.u32 %v, [seven]; st.global.u32 [%p], %v; ret; }";
  void *link = new_link(), *image = NULL;
  size_t size = 0;
  IS(INVALID_VALUE, complete(link, &image, &size)); /* nothing to link */
  OK(add(link, PTX, text, NULL));
  OK(complete(link, &image, &size));
  if (ours()) IS(0, strcmp(text, text_of(image, size)));
  IS(7, run_module(image));
  OK(CALL(cuLinkDestroy, (void *), link));
  IS(INVALID_HANDLE, CALL(cuLinkDestroy, (void *), link));
}

/* A linked image can be an input again: alone, beside a text, and in a fat binary. */
static void linked_again(void) {
  if (!ours()) return; /* NVIDIA's linker takes objects, and no linked images */
  void *link = new_link(), *image = NULL, *first = NULL;
  size_t size = 0, first_size = 0;
  OK(add(link, PTX, library_text, "library"));
  OK(complete(link, &first, &first_size));
  void *second = new_link();
  OK(add_bytes(second, CUBIN, first, first_size, "linked"));
  OK(add(second, PTX, main_text, "main"));
  OK(complete(second, &image, &size));
  IS(RESULT, run_module(image));
  void *third = new_link();
  OK(add_bytes(third, CUBIN, image, size, "whole"));
  OK(complete(third, &image, &size));
  IS(RESULT, run_module(image));
  OK(CALL(cuLinkDestroy, (void *), third));
  OK(CALL(cuLinkDestroy, (void *), second));
  OK(CALL(cuLinkDestroy, (void *), link));
}

static bool says(const char *words) {
  size_t length = (size_t)(uintptr_t)option_values[1];
  bool said = strstr(log_text, words) != NULL && length == strlen(log_text) + 1;
  if (!said) printf("the log says %s", log_text);
  return said;
}

#define ELF_SIZE (sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Shdr) + 16)

/* A sound file of a machine, with no section but that of the names. */
static const unsigned char *empty_elf(unsigned short machine) {
  static unsigned char file[ELF_SIZE];
  const Elf64_Ehdr header = {
      .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT, 0x33, 7},
      .e_type = ET_EXEC,
      .e_machine = machine,
      .e_version = EV_CURRENT,
      .e_shoff = sizeof header,
      .e_flags = 90,
      .e_ehsize = sizeof header,
      .e_shentsize = sizeof(Elf64_Shdr),
      .e_shnum = 2,
      .e_shstrndx = 1};
  const Elf64_Shdr names = {
      .sh_type = SHT_STRTAB, .sh_offset = ELF_SIZE - 16, .sh_size = 16, .sh_addralign = 1};
  memcpy(file, &header, sizeof header);
  memcpy(file + sizeof header + sizeof names, &names, sizeof names);
  return file;
}

static void refusals(void) {
  if (!ours()) return; /* NVIDIA's linker has other codes and messages */
  void *link = new_link(), *image = NULL;
  OK(add(link, PTX, main_text, "main.ptx"));
  OK(add(link, PTX, main_text, "again.ptx"));
  IS(UNKNOWN, complete(link, &image, NULL));
  TRUE(says("Multiple definition of 'run' in 'again.ptx', first defined in 'main.ptx'"));
  OK(CALL(cuLinkDestroy, (void *), link));

  link = new_link();
  OK(add(link, PTX, main_text, "main.ptx"));
  OK(add(link, PTX, ".version 7.0\n.target sm_50\n.address_size 64\n.global .u32 base = 1;\n", "b.ptx"));
  IS(UNKNOWN, complete(link, &image, NULL)); /* not visible to others */
  TRUE(says("Undefined reference to 'twice' in 'main.ptx'"));
  OK(CALL(cuLinkDestroy, (void *), link));

  link = new_link();
  OK(add(link, PTX, main_text, "main.ptx"));
  OK(add(link, PTX, ".version 7.0\n.visible .func broken() { ret;", "b.ptx"));
  IS(UNKNOWN, complete(link, &image, NULL));
  TRUE(says("ends inside of a statement"));
  OK(CALL(cuLinkDestroy, (void *), link));

  link = new_link();
  OK(add(link, PTX, main_text, "main.ptx"));
  OK(add(link, PTX, library_text, "library.ptx"));
  OK(add_bytes(link, OBJECT, empty_elf(EM_X86_64), ELF_SIZE, "a.o"));
  IS(NOT_SUPPORTED, complete(link, &image, NULL));
  TRUE(says("'a.o' cannot be linked: an object needs NVIDIA's linker"));
  IS(INVALID_VALUE, add(link, 6, "x", "x"));
  IS(INVALID_VALUE, add(link, -1, "x", "x"));
  IS(INVALID_VALUE, add_bytes(link, PTX, NULL, 4, "x"));
  OK(CALL(cuLinkDestroy, (void *), link));

  link = new_link();
  OK(add(link, PTX, main_text, "main.ptx"));
  OK(add(link, NVVM, "BC", "a.bc"));
  IS(NOT_SUPPORTED, complete(link, &image, NULL));
  OK(CALL(cuLinkDestroy, (void *), link));

  link = new_link();
  OK(add_bytes(link, CUBIN, empty_elf(EM_CUDA), ELF_SIZE, "a.cubin"));
  OK(add(link, PTX, main_text, "main.ptx"));
  IS(NOT_SUPPORTED, complete(link, &image, NULL));
  TRUE(says("'a.cubin' cannot be linked: machine code without PTX"));
  OK(CALL(cuLinkDestroy, (void *), link));

  void *none = NULL, *was = NULL;
  MUST(CALL(cuCtxPopCurrent_v2, (void **), &was));
  IS(INVALID_CONTEXT, CALL(cuLinkCreate_v2, (unsigned, int *, void **, void **), 0, NULL, NULL, &none));
  MUST(CALL(cuCtxPushCurrent_v2, (void *), was));
}

/* Inputs of every kind that are cut off or are not what their type says get an error. */
static void unsound(void) {
  if (!ours()) return; /* NVIDIA's linker has other codes */
  static const char archive[] = "!<arch>\ncuda.o/         0           0     0     644     99        `\nshort";
  const struct {
    int type;
    const void *bytes;
    size_t size;
  } inputs[] = {{CUBIN, "\177ELF", 4},
                {CUBIN, "text", 4},
                {FATBIN, "\x50\xed\x55\xba\1\0\20\0\377\377\377\377", 12},
                {OBJECT, empty_elf(EM_X86_64), ELF_SIZE - 1},
                {LIBRARY, archive, sizeof archive - 1},
                {LIBRARY, "no archive", 10}};
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
    void *link = new_link(), *image = NULL;
    OK(add_bytes(link, inputs[i].type, inputs[i].bytes, inputs[i].size, "unsound"));
    OK(add(link, PTX, main_text, "main"));
    int result = complete(link, &image, NULL);
    TRUE(result == INVALID_IMAGE || result == INVALID_PTX || result == NOT_SUPPORTED);
    OK(CALL(cuLinkDestroy, (void *), link));
  }
}

/* Every prefix of a text, and every text with one changed byte, gets an answer. */
static void damaged(void) {
  if (!ours()) return; /* NVIDIA's linker has other codes */
  char *text = (char *)check_bytes(sizeof library_text);
  void *image = NULL;
  for (size_t i = 0; i + 1 < sizeof library_text; i++) {
    memcpy(text, library_text, sizeof library_text);
    if (i % 2 == 0) text[i] = '\0';
    else text[i] = "{}()\"/*;.\\"[i / 2 % 10];
    void *link = new_link();
    OK(add(link, PTX, main_text, "main.ptx"));
    if (text[0] != '\0') OK(add(link, PTX, text, "damaged.ptx"));
    int result = complete(link, &image, NULL);
    TRUE(result == 0 || result == UNKNOWN || result == INVALID_PTX);
    OK(CALL(cuLinkDestroy, (void *), link));
  }
}

/* As GCC writes it: an initialiser names a variable that a later input defines. */
static void later_names(void) {
  static const char first[] =
      ".version 6.0\n.target sm_50\n.address_size 64\n.extern .global .align 8 .u64 vv[2];\n"
      ".visible .global .align 8 .u64 pp[1] = {generic(vv)};\n"
      ".visible .entry run(.param .u64 to) { .reg .b64 %p, %v; .reg .b32 %x;\n"
      "ld.param.u64 %p, [to]; ld.global.u64 %v, [pp]; ld.u32 %x, [%v+8]; st.global.u32 [%p], %x; ret; }\n";
  static const char second[] =
      ".version 6.0\n.target sm_50\n.address_size 64\n.visible .global .align 8 .u64 vv[2] = {5, 77};\n";
  const char *orders[2][2] = {{first, second}, {second, first}};
  for (int i = 0; i < 2; i++) {
    void *link = new_link(), *image = NULL;
    OK(add(link, PTX, orders[i][0], "first"));
    OK(add(link, PTX, orders[i][1], "second"));
    OK(complete(link, &image, NULL));
    IS(77, run_module(image));
    OK(CALL(cuLinkDestroy, (void *), link));
  }
}

/*
 * Each of many variables names the variable after it. A linker that scans all of them in each round would
 * take minutes.
 */
static void chained_names(void) {
  enum { VARIABLES = 4000 };
  static char text[VARIABLES * 64 + 1024];
  static const char other[] = ".version 6.0\n.target sm_50\n.address_size 64\n";
  int length = snprintf(text, sizeof text, "%s", other);
  for (int i = 0; i < VARIABLES; i++) {
    length += snprintf(text + length, sizeof text - (size_t)length,
                       i + 1 < VARIABLES ? ".global .align 8 .u64 v%d[1] = {generic(v%d)};\n"
                                         : ".global .align 8 .u64 v%d[1] = {77};\n",
                       i, i + 1);
  }
  snprintf(text + length, sizeof text - (size_t)length,
           ".visible .entry run(.param .u64 to) { .reg .b64 %%p, %%v; .reg .pred %%more;\n"
           "ld.param.u64 %%p, [to]; mov.u64 %%v, v0; cvta.global.u64 %%v, %%v;\n"
           "next: ld.u64 %%v, [%%v]; setp.ne.u64 %%more, %%v, 77; @%%more bra next;\n"
           "st.global.u32 [%%p], %%v; ret; }\n");
  void *link = new_link(), *image = NULL;
  OK(add(link, PTX, text, "chain"));
  OK(add(link, PTX, other, "other"));
  OK(complete(link, &image, NULL));
  IS(77, run_module(image));
  OK(CALL(cuLinkDestroy, (void *), link));
}

/* A container of a fat binary with one text in it, not compressed. */
static size_t container(unsigned char *to, const char *text) {
  uint64_t length = text == NULL ? 0 : (strlen(text) + 1 + 7) / 8 * 8,
           content = text == NULL ? 0 : 64 + length;
  const uint32_t magic = 0xba55ed50, header = 64, architecture = 50;
  const uint16_t version[2] = {1, 16}, kind[2] = {1, 0x101};
  memset(to, 0, 16 + content);
  memcpy(to, &magic, 4);
  memcpy(to + 4, version, 4);
  memcpy(to + 8, &content, 8);
  if (text == NULL) return 16;
  memcpy(to + 16, kind, 4);
  memcpy(to + 20, &header, 4);
  memcpy(to + 24, &length, 8);
  memcpy(to + 44, &architecture, 4);
  memcpy(to + 80, text, strlen(text));
  return 16 + content;
}

/* nvcc -rdc=true with PTX only: nothing is linked yet, and each object has a container. */
static void parts(void) {
  static unsigned char nothing[16], first[4096], second[4096];
  container(nothing, NULL);
  container(first, main_text);
  container(second, library_text);
  const void *more[] = {first, second, NULL};
  struct {
    unsigned magic, version;
    const void *data;
    const void *const *more;
  } wrapper = {0x466243b1, 2, nothing, more};
  IS(RESULT, run_module(&wrapper));
  more[1] = NULL; /* no part has the function that the first one calls */
  void *module = NULL;
  int result = CALL(cuModuleLoadData, (void **, const void *), &module, &wrapper);
  TRUE(result == 218);
}

/* A text that calls an undefined function is not loaded. */
static void undefined(void) {
  void *module = NULL;
  IS(218, CALL(cuModuleLoadData, (void **, const void *), &module,
               ".version 7.0\n.target sm_50\n.address_size 64\n.extern .func nowhere();\n"
               ".visible .entry run(.param .u64 to) { call.uni nowhere, (); ret; }\n"));
}

/* The text that numba gives the linker for a barrier of a whole grid, and the barrier itself. */
static void device_runtime(void) {
  if (!ours()) return; /* NVIDIA's linker needs the real libcudadevrt.a */
  static const char text[] =
      ".version 6.0\n.target sm_60\n.address_size 64\n"
      ".extern .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 a);\n"
      ".extern .func (.param .b32 r) cudaCGSynchronize(.param .b64 a, .param .b32 b);\n"
      ".visible .entry run(.param .u64 to) { .reg .b64 %p, %h; .reg .b32 %v, %e, %i, %n; .reg .pred %q;\n"
      "ld.param.u64 %p, [to]; mov.u32 %i, 0;\n"
      "{ .param .b32 a; .param .b64 r; st.param.b32 [a], 1; call.uni (r), cudaCGGetIntrinsicHandle, (a);\n"
      "ld.param.b64 %h, [r]; }\n"
      "again: atom.global.add.u32 %v, [%p], 1;\n"
      "{ .param .b64 a; .param .b32 b; .param .b32 r; st.param.b64 [a], %h; st.param.b32 [b], 0;\n"
      "call.uni (r), cudaCGSynchronize, (a, b); ld.param.b32 %e, [r]; }\n"
      /* all threads have added by now: each must see the full count in each round */
      "add.u32 %i, %i, 1; mul.lo.u32 %n, %i, 256; ld.volatile.global.u32 %v, [%p];\n"
      "{ .param .b64 a; .param .b32 b; .param .b32 r; st.param.b64 [a], %h; st.param.b32 [b], 0;\n"
      "call.uni (r), cudaCGSynchronize, (a, b); }\n"
      "setp.ne.u32 %q, %v, %n; @%q red.global.add.u32 [%p+4], 1; red.global.add.u32 [%p+8], %e;\n"
      "setp.lt.u32 %q, %i, 20; @%q bra again; ret; }\n";
  static const char archive[] =
      "!<arch>\n//                                              24        `\ncuda_device_runtime.o/\n\n"
      "/0              0           0     0     644     0         `\n";
  static const char other[] = "!<arch>\nother.o/        0           0     0     644     0         `\n";
  void *link = new_link(), *image = NULL, *module = NULL, *function = NULL;
  OK(add_bytes(link, LIBRARY, archive, sizeof archive - 1, "libcudadevrt.a"));
  OK(add(link, PTX, text, "kernel"));
  OK(complete(link, &image, NULL));
  void *refused = new_link(), *nothing = NULL;
  OK(add_bytes(refused, LIBRARY, other, sizeof other - 1, "libother.a"));
  OK(add(refused, PTX, text, "kernel"));
  IS(NOT_SUPPORTED, complete(refused, &nothing, NULL));
  TRUE(says("'libother.a' cannot be linked: a library needs NVIDIA's linker"));
  OK(CALL(cuLinkDestroy, (void *), refused));
  MUST(CALL(cuModuleLoadData, (void **, const void *), &module, image));
  MUST(CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "run"));
  devptr memory = check_alloc(12);
  unsigned values[3] = {0};
  void *parameters[] = {&memory};
  OK(CALL(cuMemsetD8_v2, (devptr, unsigned char, size_t), memory, 0, 12));
  OK(CALL(cuLaunchCooperativeKernel,
          (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **),
          function, 4, 1, 1, 64, 1, 1, 0, NULL, parameters));
  OK(CALL(cuMemcpyDtoH_v2, (void *, devptr, size_t), values, memory, 12));
  IS(20 * 256, values[0]);
  IS(0, values[1]);
  IS(0, values[2]);
  OK(CALL(cuLinkDestroy, (void *), link));
}

static const struct check_case cases[] = {{"joins", joins},
                                          {"weak_and_shared", weak_and_shared},
                                          {"one_input", one_input},
                                          {"linked_again", linked_again},
                                          {"later_names", later_names},
                                          {"chained_names", chained_names},
                                          {"parts", parts},
                                          {"undefined", undefined},
                                          {"device_runtime", device_runtime},
                                          {"refusals", refusals},
                                          {"unsound", unsound},
                                          {"damaged", damaged}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}

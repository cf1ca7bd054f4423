/* cuLink*: several texts become one module. */
#include "check.h"

enum { CUBIN = 0, PTX = 1, OBJECT = 3, UNKNOWN = 999 };

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

/* It has names of its own that the other has, too: `own` and `helper`. */
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

static int complete(void *link, void **image, size_t *size) {
  return CALL(cuLinkComplete, (void *, void **, size_t *), link, image, size);
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
    IS(strlen(image) + 1, size);
    TRUE(strstr(image, ".loc") == NULL && strstr(image, ".file") == NULL &&
         strstr(image, "debug_str") == NULL);
    TRUE(strstr(image, ".version 7.0") != NULL && strstr(image, ".version 6.0") == NULL);
    TRUE(strstr(image, "sm_60") != NULL && strstr(image, "sm_50") == NULL);
    TRUE(strstr(image, ".extern .func") == NULL);
    IS(RESULT, run_module(image));
    OK(complete(link, &again, NULL));
    TRUE(again == image);
    IS(INVALID_VALUE, add(link, PTX, main_text, "third")); /* it is complete */
    OK(CALL(cuLinkDestroy, (void *), link));
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
      ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry run(.param .u64 to) { ret; }";
  void *link = new_link(), *image = NULL;
  size_t size = 0;
  IS(INVALID_VALUE, complete(link, &image, &size)); /* of nothing */
  OK(add(link, PTX, text, NULL));
  OK(complete(link, &image, &size));
  IS(sizeof text, size);
  IS(0, memcmp(image, text, size));
  OK(CALL(cuLinkDestroy, (void *), link));
  IS(INVALID_HANDLE, CALL(cuLinkDestroy, (void *), link));
}

static bool says(const char *words) {
  size_t length = (size_t)(uintptr_t)option_values[1];
  bool said = strstr(log_text, words) != NULL && length == strlen(log_text);
  if (!said) printf("the log says %s", log_text);
  return said;
}

static void refusals(void) {
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
  IS(NOT_SUPPORTED, add(link, OBJECT, "\177ELF", "a.o"));
  TRUE(says("NVIDIA's linker"));
  OK(add(link, PTX, main_text, "main.ptx"));
  IS(NOT_SUPPORTED, add(link, CUBIN, "\177ELF", "a.cubin"));
  TRUE(says("when all are PTX"));
  IS(INVALID_VALUE, add(link, 6, "x", "x"));
  IS(INVALID_VALUE, add(link, -1, "x", "x"));
  IS(INVALID_VALUE,
     CALL(cuLinkAddData_v2, (void *, int, const void *, size_t, const char *, unsigned, int *, void **), link,
          PTX, NULL, 4, "x", 0, NULL, NULL));
  OK(CALL(cuLinkDestroy, (void *), link));
}

/* Every beginning of a text, and every text with one byte changed: an answer, whatever it is. */
static void damaged(void) {
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
    TRUE(result == 0 || result == UNKNOWN);
    OK(CALL(cuLinkDestroy, (void *), link));
  }
}

static const struct check_case cases[] = {{"joins", joins},
                                          {"weak_and_shared", weak_and_shared},
                                          {"one_input", one_input},
                                          {"refusals", refusals},
                                          {"damaged", damaged}};

int main(int argc, char **argv) {
  return check_main(argc, argv, cases, sizeof cases / sizeof *cases);
}

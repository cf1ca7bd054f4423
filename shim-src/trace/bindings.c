/* Relocations also show bindings that an interposer does not see: direct linking, RTLD_DEEPBIND. */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "trace/trace.h"

#define OBJECTS 1024

#if defined(__x86_64__)
#define TYPE_SLOT R_X86_64_JUMP_SLOT
#define TYPE_DATA R_X86_64_GLOB_DAT
#define TYPE_WORD R_X86_64_64
#else
#define TYPE_SLOT R_AARCH64_JUMP_SLOT
#define TYPE_DATA R_AARCH64_GLOB_DAT
#define TYPE_WORD R_AARCH64_ABS64
#endif

bool vgpu_trace_is_ours(const char *symbol) {
  size_t prefix = strncmp(symbol, "cu", 2) == 0 ? 2 : strncmp(symbol, "nvml", 4) == 0 ? 4 : 0;
  return prefix > 0 && symbol[prefix] >= 'A' && symbol[prefix] <= 'Z';
}

struct dynamic {
  const ElfW(Sym) * symbols;
  const char *strings;
  size_t strings_size;
  const ElfW(Rela) * relocations[2];
  size_t counts[2];
};

struct seen {
  const void *headers; /* its program header table, which an object that is loaded at address 0 has, too */
  bool lazy;           /* some of its slots were not bound yet */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct seen seen[OBJECTS]; /* under `lock` */
static size_t seen_count;

/* glibc writes addresses into the dynamic section. In the vDSO's they remain offsets. */
static const void *address_in(const struct dl_phdr_info *object, ElfW(Addr) value) {
  return (const void *)(uintptr_t)(value < object->dlpi_addr ? value + object->dlpi_addr : value);
}

static bool read_dynamic(const struct dl_phdr_info *object, struct dynamic *dynamic) {
  const ElfW(Dyn) *entry = NULL;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    if (object->dlpi_phdr[i].p_type == PT_DYNAMIC) {
      entry = (const void *)(uintptr_t)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    }
  }
  memset(dynamic, 0, sizeof *dynamic);
  for (; entry != NULL && entry->d_tag != DT_NULL; entry++) {
    switch (entry->d_tag) {
      case DT_SYMTAB:
        dynamic->symbols = address_in(object, entry->d_un.d_ptr);
        break;
      case DT_STRTAB:
        dynamic->strings = address_in(object, entry->d_un.d_ptr);
        break;
      case DT_STRSZ:
        dynamic->strings_size = entry->d_un.d_val;
        break;
      case DT_RELA:
        dynamic->relocations[0] = address_in(object, entry->d_un.d_ptr);
        break;
      case DT_RELASZ:
        dynamic->counts[0] = entry->d_un.d_val / sizeof(ElfW(Rela));
        break;
      case DT_JMPREL:
        dynamic->relocations[1] = address_in(object, entry->d_un.d_ptr);
        break;
      case DT_PLTRELSZ:
        dynamic->counts[1] = entry->d_un.d_val / sizeof(ElfW(Rela));
        break;
      default:
        break;
    }
  }
  return dynamic->symbols != NULL && dynamic->strings != NULL;
}

static const char *name_of(const struct dl_phdr_info *object) {
  if (object->dlpi_name != NULL && object->dlpi_name[0] != '\0') return object->dlpi_name;
  return "program";
}

static bool holds(const struct dl_phdr_info *object, uintptr_t address) {
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD) continue;
    uintptr_t start = object->dlpi_addr + segment->p_vaddr;
    if (address >= start && address - start < segment->p_memsz) return true;
  }
  return false;
}

/* Traces an object whose lookups do not go through this library. */
static void tell_loader(const struct dl_phdr_info *object, const char *symbol, uintptr_t bound) {
  Dl_info ours, theirs;
  if (dladdr(seen, &ours) == 0 || dladdr((void *)bound, &theirs) == 0) return;
  if (theirs.dli_fbase == ours.dli_fbase) return;
  struct vgpu_trace_line line;
  vgpu_trace_begin(&line, "bypassed");
  vgpu_trace_text(&line, "object", name_of(object));
  vgpu_trace_text(&line, "symbol", symbol);
  vgpu_trace_text(&line, "library", theirs.dli_fname);
  vgpu_trace_end(&line);
}

/* Traces one binding. True: the slot is not bound yet. */
static bool tell_binding(const struct dl_phdr_info *object, const char *symbol, uintptr_t bound, bool again) {
  /* An unbound slot leads into the object's own jump table. A library may also be bound to itself. */
  bool itself = holds(object, bound);
  Dl_info found;
  bool own = itself && dladdr((void *)bound, &found) != 0 && found.dli_sname != NULL &&
             strcmp(found.dli_sname, symbol) == 0;
  bool lazy = bound == 0 || (itself && !own);
  if (again && lazy) return true; /* traced before and not bound since */
  struct vgpu_trace_line line;
  vgpu_trace_begin(&line, "binds");
  vgpu_trace_text(&line, "object", name_of(object));
  vgpu_trace_text(&line, "symbol", symbol);
  vgpu_trace_text(&line, "how", lazy ? "lazy" : "direct");
  if (lazy) vgpu_trace_text(&line, "library", NULL);
  else vgpu_trace_holder(&line, "library", (const void *)bound);
  vgpu_trace_end(&line);
  return lazy;
}

/*
 * Traces the slots of one object. `again`: only slots that may have been unbound at first. True: some still
 * are.
 */
static bool tell_object(const struct dl_phdr_info *object, bool again) {
  struct dynamic dynamic;
  bool lazy = false;
  if (!read_dynamic(object, &dynamic)) return false;
  for (int table = again ? 1 : 0; table < 2; table++) {
    for (size_t i = 0; dynamic.relocations[table] != NULL && i < dynamic.counts[table]; i++) {
      const ElfW(Rela) *relocation = &dynamic.relocations[table][i];
      uint32_t type = (uint32_t)ELF64_R_TYPE(relocation->r_info);
      if (type != TYPE_SLOT && type != TYPE_DATA && type != TYPE_WORD) continue;
      uint32_t offset = dynamic.symbols[ELF64_R_SYM(relocation->r_info)].st_name;
      if (offset >= dynamic.strings_size) continue;
      const char *symbol = dynamic.strings + offset;
      bool loader = strcmp(symbol, "dlsym") == 0 || strcmp(symbol, "dlopen") == 0;
      if (!loader && !vgpu_trace_is_ours(symbol)) continue;
      uintptr_t bound;
      memcpy(&bound, (const void *)(uintptr_t)(object->dlpi_addr + relocation->r_offset), sizeof bound);
      if (!loader) lazy |= tell_binding(object, symbol, bound, again);
      else if (!holds(object, bound)) tell_loader(object, symbol, bound);
    }
  }
  return lazy;
}

static int visit(struct dl_phdr_info *object, size_t size, void *with) {
  const bool *last = with;
  (void)size;
  size_t at = 0;
  while (at < seen_count && seen[at].headers != object->dlpi_phdr) at++;
  if (at < seen_count) {
    if (*last && seen[at].lazy) tell_object(object, true);
    return 0;
  }
  struct vgpu_trace_line line;
  vgpu_trace_begin(&line, "object");
  vgpu_trace_text(&line, "object", name_of(object));
  vgpu_trace_end(&line);
  bool lazy = tell_object(object, false);
  if (seen_count < OBJECTS) seen[seen_count++] = (struct seen){.headers = object->dlpi_phdr, .lazy = lazy};
  return 0;
}

/* Names the program that writes the trace, once for each process, and again after a fork() without exec. */
static void tell_process(void) {
  static pid_t told; /* process that was traced; under `lock` */
  char program[1024];
  if (told == getpid()) return;
  told = getpid();
  int error = errno;
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  errno = error;
  program[length > 0 ? length : 0] = '\0';
  struct vgpu_trace_line line;
  vgpu_trace_begin(&line, "process");
  vgpu_trace_text(&line, "program", length > 0 ? program : NULL);
  vgpu_trace_end(&line);
}

void vgpu_trace_scan(bool last) {
  /* The thread that holds the lock traces the same bindings, and this may be its signal handler. */
  if (pthread_mutex_trylock(&lock) != 0) return;
  tell_process();
  dl_iterate_phdr(visit, &last);
  pthread_mutex_unlock(&lock);
}

#include "guest/own_mappings.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct mapping {
  uintptr_t start, end;
  char rights[5];
  uint64_t offset;
  struct vgpu_mapped_file file;
  char name[32]; /* its beginning */
};

static bool read_mapping(FILE *list, struct mapping *mapping) {
  char line[256];
  if (fgets(line, sizeof line, list) == NULL) return false;
  bool whole = strchr(line, '\n') != NULL;
  for (int c = 0; !whole && c != '\n' && c != EOF;) c = fgetc(list);
  *mapping = (struct mapping){0};
  int fields =
      sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %" SCNx64 " %" SCNx32 ":%" SCNx32 " %" SCNu64 " %31s",
             &mapping->start, &mapping->end, mapping->rights, &mapping->offset, &mapping->file.major,
             &mapping->file.minor, &mapping->file.inode, mapping->name);
  return fields >= 7;
}

static FILE *open_list(void) {
  return fopen("/proc/self/maps", "re");
}

static const char *unlike_heap(const struct mapping *mapping) {
  if (mapping->rights[3] != 'p') return "it is shared with other processes already";
  if (mapping->file.inode != 0) return "it is mapped from a file, or made of huge pages";
  if (strncmp(mapping->rights, "rw-", 3) != 0) return "it cannot be read and written";
  bool named = mapping->name[0] == '[';
  if (named && strcmp(mapping->name, "[heap]") != 0 && strncmp(mapping->name, "[anon:", 6) != 0)
    return "it is a stack, or the kernel's";
  return NULL;
}

const char *vgpu_mappings_unlike_heap(const void *memory, size_t bytes) {
  uintptr_t at = (uintptr_t)memory, end = at + bytes;
  FILE *list = open_list();
  if (list == NULL) return "/proc/self/maps cannot be read";
  const char *why = NULL;
  struct mapping mapping;
  while (why == NULL && at < end && read_mapping(list, &mapping)) {
    if (mapping.end <= at) continue;
    if (mapping.start > at) break;
    why = unlike_heap(&mapping);
    at = mapping.end;
  }
  fclose(list);
  return why == NULL && at < end ? "not all of it is mapped" : why;
}

bool vgpu_mappings_file(const void *memory, struct vgpu_mapped_file *file) {
  uintptr_t at = (uintptr_t)memory;
  FILE *list = open_list();
  if (list == NULL) return false;
  struct mapping mapping;
  bool found = false;
  while (!found && read_mapping(list, &mapping)) {
    found = mapping.start <= at && at < mapping.end && mapping.rights[3] == 's' && mapping.file.inode != 0;
  }
  fclose(list);
  if (found) *file = mapping.file;
  return found;
}

bool vgpu_mappings_next(const struct vgpu_mapped_file *file, uintptr_t base, uintptr_t end, uintptr_t *from,
                        uintptr_t *until) {
  FILE *list = open_list();
  if (list == NULL) return false;
  struct mapping mapping;
  bool found = false;
  while (!found && read_mapping(list, &mapping) && mapping.start < end) {
    found = mapping.end > *from && mapping.rights[3] == 's' && mapping.file.inode == file->inode &&
            mapping.file.major == file->major && mapping.file.minor == file->minor && mapping.start >= base &&
            mapping.start - base == mapping.offset;
  }
  fclose(list);
  if (!found) return false;
  if (mapping.start > *from) *from = mapping.start;
  *until = mapping.end < end ? mapping.end : end;
  return true;
}

bool vgpu_mappings_own_stack(const void *memory, size_t bytes) {
  pthread_attr_t attributes;
  void *stack = NULL;
  size_t size = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return true;
  bool known = pthread_attr_getstack(&attributes, &stack, &size) == 0;
  pthread_attr_destroy(&attributes);
  uintptr_t from = (uintptr_t)memory, lowest = (uintptr_t)stack;
  return !known || (from < lowest + size && lowest < from + bytes);
}

bool vgpu_mappings_pinned(void) {
  FILE *status = fopen("/proc/self/status", "re");
  if (status == NULL) return true;
  char line[128];
  unsigned long long kilobytes = 1;
  while (fgets(line, sizeof line, status) != NULL) {
    if (sscanf(line, "VmPin: %llu", &kilobytes) == 1) break;
  }
  fclose(status);
  return kilobytes != 0;
}

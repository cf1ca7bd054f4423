#include "disk.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_INODES = 1 << 20 };

/* A directory entry that is not on the disk yet. All entries of one `group` reach the disk together. */
struct change {
  uint64_t directory, ino;
  char *name;
  unsigned long group;
};

static struct inode *inodes;
static size_t used;
static struct change *changes;
static size_t pending, room;
static unsigned long group;

static void *checked(void *memory) {
  if (memory == NULL) abort();
  return memory;
}

void disk_format(void) {
  inodes = checked(calloc(MAX_INODES, sizeof *inodes));
  used = ROOT;
  disk_new(S_IFDIR | 0755, 0, 0);
  disk_sync(ROOT);
}

struct inode *disk_inode(uint64_t ino) {
  return ino >= ROOT && ino < used ? &inodes[ino] : NULL;
}

uint64_t disk_new(mode_t mode, uid_t uid, gid_t gid) {
  if (used == MAX_INODES) abort();
  struct side *memory = &inodes[used].memory;
  *memory = (struct side){.mode = mode, .uid = uid, .gid = gid};
  clock_gettime(CLOCK_REALTIME, &memory->mtime);
  memory->atime = memory->mtime;
  inodes[used].changed = true;
  return used++;
}

static size_t place_of(const struct side *side, const char *name) {
  size_t i = 0;
  while (i < side->count && strcmp(side->entries[i].name, name) != 0) i++;
  return i;
}

uint64_t disk_find(const struct inode *directory, const char *name) {
  const struct side *memory = &directory->memory;
  size_t i = place_of(memory, name);
  return i < memory->count ? memory->entries[i].ino : 0;
}

static void set(struct side *side, const char *name, uint64_t ino) {
  size_t i = place_of(side, name);
  if (i < side->count && ino != 0) {
    side->entries[i].ino = ino;
  } else if (i < side->count) {
    free(side->entries[i].name);
    side->entries[i] = side->entries[--side->count];
  } else if (ino != 0) {
    side->entries = checked(reallocarray(side->entries, side->count + 1, sizeof *side->entries));
    side->entries[side->count++] = (struct entry){.name = checked(strdup(name)), .ino = ino};
  }
}

void disk_set(uint64_t directory, const char *name, uint64_t ino) {
  struct side *memory = &inodes[directory].memory;
  set(memory, name, ino);
  disk_touch(&inodes[directory]);
  if (pending == room) changes = checked(reallocarray(changes, room = room * 2 + 64, sizeof *changes));
  changes[pending++] = (struct change){directory, ino, checked(strdup(name)), group};
}

void disk_change_done(void) {
  group++;
}

void disk_touch(struct inode *node) {
  clock_gettime(CLOCK_REALTIME, &node->memory.mtime);
  node->changed = true;
}

bool disk_resize(struct inode *node, size_t size) {
  struct side *memory = &node->memory;
  disk_touch(node);
  if (size > memory->size) {
    char *larger = realloc(memory->bytes, size);
    if (larger == NULL) return false;
    memset(larger + memory->size, 0, size - memory->size);
    memory->bytes = larger;
  }
  memory->size = size;
  return true;
}

static void copy_attributes(struct side *to, const struct side *from) {
  to->mode = from->mode;
  to->uid = from->uid;
  to->gid = from->gid;
  to->atime = from->atime;
  to->mtime = from->mtime;
}

static void copy_bytes(struct side *to, const struct side *from, size_t size) {
  char *bytes = size == 0 ? NULL : checked(malloc(size));
  if (size > 0) memcpy(bytes, from->bytes, size);
  free(to->bytes);
  to->bytes = bytes;
  to->size = size;
}

/* An inode whose name reaches the disk before it was synced: attributes, no bytes. Links have their target.
 */
static void put_name(const struct change *change) {
  struct inode *child = disk_inode(change->ino);
  set(&inodes[change->directory].disk, change->name, change->ino);
  if (child == NULL || child->on_disk) return;
  copy_attributes(&child->disk, &child->memory);
  if (S_ISLNK(child->memory.mode)) copy_bytes(&child->disk, &child->memory, child->memory.size);
  child->on_disk = true;
}

/* Writes a group of changes to the disk if `chosen` accepts one of them. */
static void put(bool (*chosen)(const struct change *, uint64_t), uint64_t argument) {
  size_t kept = 0;
  for (size_t i = 0, end; i < pending; i = end) {
    bool now = false;
    for (end = i; end < pending && changes[end].group == changes[i].group; end++)
      now = now || chosen(&changes[end], argument);
    for (size_t j = i; j < end; j++) {
      if (now) {
        put_name(&changes[j]);
        free(changes[j].name);
      } else {
        changes[kept++] = changes[j];
      }
    }
  }
  pending = kept;
}

static bool is_in(const struct change *change, uint64_t directory) {
  return change->directory == directory;
}

static bool is_before(const struct change *change, uint64_t end) {
  return change->group < end;
}

void disk_sync(uint64_t ino) {
  struct inode *node = &inodes[ino];
  copy_attributes(&node->disk, &node->memory);
  node->on_disk = true;
  node->changed = false;
  if (S_ISDIR(node->memory.mode)) put(is_in, ino);
  else copy_bytes(&node->disk, &node->memory, node->memory.size);
}

void disk_sync_all(void) {
  put(is_before, group);
  for (uint64_t ino = ROOT; ino < used; ino++)
    if (inodes[ino].changed) disk_sync(ino);
}

static void copy_entries(struct side *to, const struct side *from) {
  for (size_t i = 0; i < to->count; i++) free(to->entries[i].name);
  to->count = 0;
  for (size_t i = 0; i < from->count; i++) set(to, from->entries[i].name, from->entries[i].ino);
}

void disk_lose(enum keep keep, unsigned int seed) {
  if (pending > 0 && keep != KEEP_NOTHING) {
    unsigned long first = changes[0].group, open = group - first;
    put(is_before, keep == KEEP_NAMES ? group : first + seed % (open + 1));
  }
  for (size_t i = 0; i < pending; i++) free(changes[i].name);
  pending = 0;
  for (uint64_t ino = ROOT; ino < used; ino++) {
    struct inode *node = &inodes[ino];
    if (!node->changed) continue;
    node->changed = false;
    if (keep != KEEP_NOTHING && S_ISREG(node->memory.mode) && node->memory.size > node->disk.size)
      copy_bytes(&node->disk, &node->memory, (node->disk.size + node->memory.size) / 2);
    copy_attributes(&node->memory, &node->disk);
    if (S_ISDIR(node->disk.mode)) copy_entries(&node->memory, &node->disk);
    else copy_bytes(&node->memory, &node->disk, node->disk.size);
  }
}

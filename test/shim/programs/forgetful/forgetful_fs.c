/*
 * forgetful_fs DIR: a file system in memory at DIR, in a mount namespace of its own (/proc/PID/root/DIR),
 * that loses what was not synced. Each line on standard input is a command, and is answered by a line: settle
 * everything is synced cut N KEEP SEED      the power fails in the N-th fsync from now, before it does
 * anything: every call ends with EIO on                   the power is back: only what was synced is there,
 * and KEEP of the rest; answers the number of calls of fsync since `cut` It ends with its standard input.
 */
#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_WRITE = 1 << 17, BUFFER = MAX_WRITE + 4096 };

static int device;
static bool dead;
static unsigned long syncs, cut_at, seed;
static int keep;

static void answer(const struct fuse_in_header *in, int error, const void *body, size_t size) {
  static char out[BUFFER];
  struct fuse_out_header head = {.len = (uint32_t)(sizeof head + size), .error = error, .unique = in->unique};
  memcpy(out, &head, sizeof head);
  if (size > 0) memcpy(out + sizeof head, body, size);
  /* ENOENT: the caller was interrupted and no longer waits. */
  if (write(device, out, head.len) < 0 && errno != ENOENT) abort();
}

static struct fuse_attr attributes_of(uint64_t ino) {
  const struct side *memory = &disk_inode(ino)->memory;
  return (struct fuse_attr){.ino = ino,
                            .size = memory->size,
                            .blocks = (memory->size + 511) / 512,
                            .atime = (uint64_t)memory->atime.tv_sec,
                            .mtime = (uint64_t)memory->mtime.tv_sec,
                            .ctime = (uint64_t)memory->mtime.tv_sec,
                            .atimensec = (uint32_t)memory->atime.tv_nsec,
                            .mtimensec = (uint32_t)memory->mtime.tv_nsec,
                            .mode = memory->mode,
                            .nlink = 1,
                            .uid = memory->uid,
                            .gid = memory->gid,
                            .blksize = 4096};
}

static void answer_entry(const struct fuse_in_header *in, uint64_t ino, bool opened) {
  struct {
    struct fuse_entry_out entry;
    struct fuse_open_out open;
  } out = {.entry = {.nodeid = ino, .attr = attributes_of(ino)}};
  answer(in, 0, &out, opened ? sizeof out : sizeof out.entry);
}

static void answer_attributes(const struct fuse_in_header *in) {
  struct fuse_attr_out out = {.attr = attributes_of(in->nodeid)};
  answer(in, 0, &out, sizeof out);
}

static void make(const struct fuse_in_header *in, const char *name, mode_t mode, const char *target,
                 bool opened) {
  if (disk_find(disk_inode(in->nodeid), name) != 0) {
    answer(in, -EEXIST, NULL, 0);
    return;
  }
  uint64_t ino = disk_new(mode, in->uid, in->gid);
  struct inode *node = disk_inode(ino);
  if (target != NULL && disk_resize(node, strlen(target))) memcpy(node->memory.bytes, target, strlen(target));
  disk_set(in->nodeid, name, ino);
  disk_change_done();
  answer_entry(in, ino, opened);
}

static void removed(const struct fuse_in_header *in, const char *name) {
  uint64_t ino = disk_find(disk_inode(in->nodeid), name);
  const struct side *memory = ino == 0 ? NULL : &disk_inode(ino)->memory;
  int error = memory == NULL ? -ENOENT : memory->count > 0 ? -ENOTEMPTY : 0;
  if (error == 0) disk_set(in->nodeid, name, 0);
  disk_change_done();
  answer(in, error, NULL, 0);
}

static void renamed(const struct fuse_in_header *in, uint64_t to, const char *names, unsigned int flags) {
  const char *from_name = names, *to_name = names + strlen(names) + 1;
  uint64_t ino = disk_find(disk_inode(in->nodeid), from_name), former = disk_find(disk_inode(to), to_name);
  int error = 0;
  if (ino == 0) error = -ENOENT;
  else if ((flags & ~1u) != 0) error = -EINVAL;
  else if ((flags & 1u) != 0 && former != 0) error = -EEXIST; /* RENAME_NOREPLACE */
  else if (former != 0 && disk_inode(former)->memory.count > 0) error = -ENOTEMPTY;
  if (error == 0 && ino != former) {
    disk_set(in->nodeid, from_name, 0);
    disk_set(to, to_name, ino);
    disk_change_done();
  }
  answer(in, error, NULL, 0);
}

static void set_attributes(const struct fuse_in_header *in, const struct fuse_setattr_in *wanted) {
  struct inode *node = disk_inode(in->nodeid);
  struct side *memory = &node->memory;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  node->changed = true;
  if ((wanted->valid & FATTR_MODE) != 0) memory->mode = (memory->mode & S_IFMT) | (wanted->mode & 07777);
  if ((wanted->valid & FATTR_UID) != 0) memory->uid = wanted->uid;
  if ((wanted->valid & FATTR_GID) != 0) memory->gid = wanted->gid;
  if ((wanted->valid & FATTR_SIZE) != 0 && !disk_resize(node, wanted->size)) {
    answer(in, -ENOSPC, NULL, 0);
    return;
  }
  if ((wanted->valid & FATTR_ATIME) != 0)
    memory->atime = (struct timespec){(time_t)wanted->atime, wanted->atimensec};
  if ((wanted->valid & FATTR_MTIME) != 0)
    memory->mtime = (struct timespec){(time_t)wanted->mtime, wanted->mtimensec};
  if ((wanted->valid & FATTR_ATIME_NOW) != 0) memory->atime = now;
  if ((wanted->valid & (FATTR_MTIME_NOW | FATTR_SIZE)) != 0 && (wanted->valid & FATTR_MTIME) == 0)
    memory->mtime = now;
  answer_attributes(in);
}

static void read_bytes(const struct fuse_in_header *in, const struct fuse_read_in *span) {
  const struct side *memory = &disk_inode(in->nodeid)->memory;
  size_t begin = span->offset < memory->size ? span->offset : memory->size;
  size_t size = memory->size - begin < span->size ? memory->size - begin : span->size;
  answer(in, 0, size == 0 ? NULL : memory->bytes + begin, size);
}

static void write_bytes(const struct fuse_in_header *in, const struct fuse_write_in *span) {
  struct inode *node = disk_inode(in->nodeid);
  size_t end = span->offset + span->size;
  if (end > node->memory.size && !disk_resize(node, end)) {
    answer(in, -ENOSPC, NULL, 0);
    return;
  }
  if (span->size > 0) memcpy(node->memory.bytes + span->offset, span + 1, span->size);
  disk_touch(node);
  struct fuse_write_out out = {.size = span->size};
  answer(in, 0, &out, sizeof out);
}

/* All entries as they are when the directory is opened: it may be emptied while it is read. */
struct listing {
  size_t size;
  char bytes[];
};

static void open_directory(const struct fuse_in_header *in) {
  const struct side *memory = &disk_inode(in->nodeid)->memory;
  struct listing *listing = calloc(1, sizeof *listing);
  for (size_t i = 0; listing != NULL && i < memory->count; i++) {
    const struct entry *entry = &memory->entries[i];
    size_t length = strlen(entry->name), size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + length);
    struct listing *larger = realloc(listing, sizeof *listing + listing->size + size);
    if (larger == NULL) abort();
    listing = larger;
    struct fuse_dirent *place = (struct fuse_dirent *)(listing->bytes + listing->size);
    memset(place, 0, size);
    listing->size += size;
    place->ino = entry->ino;
    place->off = listing->size;
    place->namelen = (uint32_t)length;
    place->type = disk_inode(entry->ino)->memory.mode >> 12;
    memcpy(place->name, entry->name, length);
  }
  struct fuse_open_out out = {.fh = (uint64_t)(uintptr_t)listing};
  answer(in, 0, &out, sizeof out);
}

static void read_directory(const struct fuse_in_header *in, const struct fuse_read_in *span) {
  const struct listing *listing = (const struct listing *)(uintptr_t)span->fh;
  size_t begin = span->offset < listing->size ? span->offset : listing->size, end = begin;
  while (end < listing->size) {
    const struct fuse_dirent *next = (const struct fuse_dirent *)(listing->bytes + end);
    if (next->off - begin > span->size) break;
    end = next->off;
  }
  answer(in, 0, listing->bytes + begin, end - begin);
}

static void sync_one(const struct fuse_in_header *in) {
  if (++syncs == cut_at) {
    dead = true;
    answer(in, -EIO, NULL, 0);
    return;
  }
  disk_sync(in->nodeid);
  answer(in, 0, NULL, 0);
}

static void start(const struct fuse_in_header *in, const struct fuse_init_in *kernel) {
  struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION,
                              .minor = FUSE_KERNEL_MINOR_VERSION,
                              .max_readahead = kernel->max_readahead,
                              .flags = kernel->flags & FUSE_BIG_WRITES,
                              .max_write = MAX_WRITE,
                              .time_gran = 1};
  answer(in, 0, &out, sizeof out);
}

static void serve(const struct fuse_in_header *in, const void *body) {
  static const struct fuse_open_out opened;
  static const struct fuse_statfs_out room = {
      .st = {.blocks = 1 << 20, .bfree = 1 << 19, .bavail = 1 << 19, .bsize = 4096, .namelen = 255}};
  if (in->opcode == FUSE_FORGET || in->opcode == FUSE_BATCH_FORGET || in->opcode == FUSE_INTERRUPT) return;
  if (in->opcode == FUSE_INIT) {
    start(in, body);
    return;
  }
  if (in->opcode == FUSE_RELEASEDIR) free((void *)(uintptr_t)((const struct fuse_release_in *)body)->fh);
  if (in->opcode == FUSE_RELEASE || in->opcode == FUSE_RELEASEDIR || in->opcode == FUSE_DESTROY) {
    answer(in, 0, NULL, 0);
    return;
  }
  struct inode *node = disk_inode(in->nodeid);
  if (dead || node == NULL) {
    answer(in, -EIO, NULL, 0);
    return;
  }
  switch (in->opcode) {
    case FUSE_LOOKUP: {
      uint64_t ino = disk_find(node, body);
      if (ino == 0) answer(in, -ENOENT, NULL, 0);
      else answer_entry(in, ino, false);
      return;
    }
    case FUSE_GETATTR:
      answer_attributes(in);
      return;
    case FUSE_SETATTR:
      set_attributes(in, body);
      return;
    case FUSE_READLINK:
      answer(in, 0, node->memory.bytes, node->memory.size);
      return;
    case FUSE_SYMLINK:
      make(in, body, S_IFLNK | 0777, (const char *)body + strlen(body) + 1, false);
      return;
    case FUSE_MKDIR: {
      const struct fuse_mkdir_in *wanted = body;
      make(in, (const char *)(wanted + 1), S_IFDIR | (wanted->mode & 07777), NULL, false);
      return;
    }
    case FUSE_CREATE: {
      const struct fuse_create_in *wanted = body;
      make(in, (const char *)(wanted + 1), S_IFREG | (wanted->mode & 07777), NULL, true);
      return;
    }
    case FUSE_UNLINK:
    case FUSE_RMDIR:
      removed(in, body);
      return;
    case FUSE_RENAME: {
      const struct fuse_rename_in *wanted = body;
      renamed(in, wanted->newdir, (const char *)(wanted + 1), 0);
      return;
    }
    case FUSE_RENAME2: {
      const struct fuse_rename2_in *wanted = body;
      renamed(in, wanted->newdir, (const char *)(wanted + 1), wanted->flags);
      return;
    }
    case FUSE_LINK: {
      const struct fuse_link_in *wanted = body;
      disk_set(in->nodeid, (const char *)(wanted + 1), wanted->oldnodeid);
      disk_change_done();
      answer_entry(in, wanted->oldnodeid, false);
      return;
    }
    case FUSE_OPEN:
      answer(in, 0, &opened, sizeof opened);
      return;
    case FUSE_READ:
      read_bytes(in, body);
      return;
    case FUSE_WRITE:
      write_bytes(in, body);
      return;
    case FUSE_STATFS:
      answer(in, 0, &room, sizeof room);
      return;
    case FUSE_FLUSH:
      answer(in, 0, NULL, 0);
      return;
    case FUSE_FSYNC:
    case FUSE_FSYNCDIR:
      sync_one(in);
      return;
    case FUSE_OPENDIR:
      open_directory(in);
      return;
    case FUSE_READDIR:
      read_directory(in, body);
      return;
    default:
      answer(in, -ENOSYS, NULL, 0);
  }
}

static void command(const char *line) {
  unsigned long at, with;
  int what;
  if (strcmp(line, "settle\n") == 0) {
    disk_sync_all();
    puts("settled");
  } else if (sscanf(line, "cut %lu %d %lu", &at, &what, &with) == 3) {
    syncs = 0;
    cut_at = at;
    keep = what;
    seed = with;
    puts("armed");
  } else if (strcmp(line, "on\n") == 0) {
    disk_lose((enum keep)keep, (unsigned int)seed);
    dead = false;
    cut_at = 0;
    printf("%lu\n", syncs);
  } else {
    puts("?");
  }
  fflush(stdout);
}

int main(int count, char **arguments) {
  if (count != 2) return 2;
  device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  char options[128];
  snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
  if (device < 0 || unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
      mount("forgetful", arguments[1], "fuse", 0, options) != 0) {
    perror("forgetful_fs");
    return 1;
  }
  disk_format();
  puts("mounted");
  fflush(stdout);
  static char line[256];
  static _Alignas(struct fuse_in_header) char request[BUFFER];
  struct pollfd ready[] = {{.fd = device, .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};
  for (;;) {
    if (poll(ready, 2, -1) < 0) continue;
    if ((ready[0].revents & POLLIN) != 0) {
      ssize_t got = read(device, request, sizeof request);
      if (got >= (ssize_t)sizeof(struct fuse_in_header))
        serve((const struct fuse_in_header *)request, request + sizeof(struct fuse_in_header));
      else if (got < 0 && errno == ENODEV) return 0;
    }
    if (ready[1].revents != 0) {
      if (fgets(line, sizeof line, stdin) == NULL) return 0;
      command(line);
    }
  }
}

/*
 * The tree of forgetful_fs: each inode as programs see it, and as it is on the disk. Only fsync moves what is
 * in memory to the disk: that of a file its bytes and attributes, that of a directory its entries and
 * attributes.
 */
#ifndef FORGETFUL_DISK_H
#define FORGETFUL_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

struct entry {
  char *name;
  uint64_t ino;
};

/* One side of an inode: in memory, or on the disk. */
struct side {
  mode_t mode;
  uid_t uid;
  gid_t gid;
  struct timespec atime, mtime;
  char *bytes; /* of a file, or the target of a link */
  size_t size;
  struct entry *entries;
  size_t count;
};

struct inode {
  struct side memory, disk;
  bool on_disk; /* the disk has its attributes, at least */
  bool changed; /* the two sides may differ */
};

enum { ROOT = 1 };

/* The part of the changes without fsync that a power failure leaves. */
enum keep {
  KEEP_NOTHING,
  KEEP_NAMES, /* all entries of directories, and half of each file's new bytes */
  KEEP_SOME,  /* the first entries, as a journal that was cut does, and half of the bytes */
};

void disk_format(void);
struct inode *disk_inode(uint64_t ino); /* NULL: there is none */
uint64_t disk_new(mode_t mode, uid_t uid, gid_t gid);
uint64_t disk_find(const struct inode *directory, const char *name); /* 0: no such entry */
/* `ino` 0 removes the name. Changes of one call reach the disk together. */
void disk_set(uint64_t directory, const char *name, uint64_t ino);
void disk_change_done(void);
/* Call both before the inode is changed in memory. */
void disk_touch(struct inode *node);
bool disk_resize(struct inode *node, size_t size);
void disk_sync(uint64_t ino);
void disk_sync_all(void);
void disk_lose(enum keep keep, unsigned int seed);

#endif

/*
 * The peers that may connect, and the limits of each: /etc/vgpu/hostd.conf, see vgpu-hostd.conf(5). The first
 * line that matches a peer decides. A peer that no line matches is refused.
 */
#ifndef VGPU_HOST_POLICY_H
#define VGPU_HOST_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/session/accounts.h"

#define VGPU_POLICY_FILE "/etc/vgpu/hostd.conf"
#define VGPU_POLICY_BYTES_MAX 65536u
#define VGPU_POLICY_RULES_MAX 512u
#define VGPU_POLICY_RANGES_MAX 16u
#define VGPU_PEER_GROUPS_MAX 1024u
#define VGPU_POLICY_CHOICES_MAX 64u
#define VGPU_DEVICES_TEXT 1536u /* 32 UUIDs, and more */
#define VGPU_VM_MEMORY_PATH_MAX 160u

struct vgpu_identity {
  struct vgpu_peer peer;
  uint32_t uid, gid, pid;                /* unix; at the time it connected */
  uint32_t groups[VGPU_PEER_GROUPS_MAX]; /* unix: supplementary */
  uint32_t group_count;
  bool groups_unknown; /* more than VGPU_PEER_GROUPS_MAX: a rule that denies a group matches, one that allows
                          a group does not */
};

/* The file sets no limit: the daemon's own applies (admission.h). */
#define VGPU_LIMIT_USUAL UINT32_MAX

#define VGPU_RECONNECT_USUAL 30u

/* 0: no limit. */
struct vgpu_peer_limits {
  uint32_t sessions;    /* of the peer, at a time */
  uint32_t connects;    /* of the peer, a second */
  uint64_t memory;      /* of the peer's sessions together, of all devices */
  uint64_t outstanding; /* of each session: bytes that wait at the host */
  uint32_t calls;       /* of each session, a second */
  uint32_t weight;      /* of the peer beside others at a device; never 0 */
  uint32_t share;       /* percent of each device, whatever the weights; 0: by weight */
  uint32_t reconnect;   /* seconds that a session waits for its guest's next connection; 0: it ends at once */
  uint32_t choice;      /* index in policy->choices plus 1; 0: all devices */
  uint32_t line;        /* the line of the file with these limits; 0: none */
  struct vgpu_chosen_devices devices;      /* the devices of `choice`, set when the peer is admitted */
  char vm_memory[VGPU_VM_MEMORY_PATH_MAX]; /* the file that is shared with the peer's VM; empty: none */
  bool all_processes;                      /* NVML lists the processes of all users to this peer */
};

#define VGPU_USUAL_LIMITS                                                                                    \
  ((struct vgpu_peer_limits){.sessions = VGPU_LIMIT_USUAL,                                                   \
                             .connects = VGPU_LIMIT_USUAL,                                                   \
                             .weight = VGPU_WEIGHT_USUAL,                                                    \
                             .reconnect = VGPU_RECONNECT_USUAL})

struct vgpu_numbers {
  uint32_t count; /* 0: any */
  struct vgpu_number_range {
    uint32_t first, last;
  } ranges[VGPU_POLICY_RANGES_MAX];
};

struct vgpu_rule {
  bool allow;
  uint32_t line;
  uint32_t kind; /* enum vgpu_address_kind; 0: any */
  struct vgpu_numbers uid, gid, pid, cid;
  struct vgpu_peer_limits limits;
};

/* A devices= setting as in the file, and as devices of this host (devices.h). */
struct vgpu_device_choice {
  uint32_t line;
  char text[VGPU_DEVICES_TEXT];
  struct vgpu_chosen_devices found;
};

struct vgpu_policy {
  char user[64]; /* the user of workers; "": the file does not say */
  char mps[160]; /* the pipe directory of MPS; "": workers do not use MPS */
  uint32_t choice_count;
  struct vgpu_device_choice choices[VGPU_POLICY_CHOICES_MAX];
  uint32_t count;
  struct vgpu_rule rules[VGPU_POLICY_RULES_MAX];
};

/* False: `error` has the line and the mistake. `name` is the file's name in messages. */
bool vgpu_policy_parse(struct vgpu_policy *policy, const char *name, const char *text, size_t size,
                       char *error, size_t error_size);

enum vgpu_policy_result { VGPU_POLICY_GOOD = 0, VGPU_POLICY_ABSENT = 1, VGPU_POLICY_BAD = 2 };
enum vgpu_policy_result vgpu_policy_read(struct vgpu_policy *policy, const char *path, char *error,
                                         size_t error_size);

/*
 * For a file that is read again while others may write it. False, with the reason in `error`: the file
 * changes, or its last line has no end. Takes some milliseconds.
 */
bool vgpu_policy_is_written(const char *path, char *error, size_t error_size);

/* Returns the first line that matches, allow or deny; NULL: no line matches. */
const struct vgpu_rule *vgpu_policy_match(const struct vgpu_policy *policy,
                                          const struct vgpu_identity *identity);

#endif

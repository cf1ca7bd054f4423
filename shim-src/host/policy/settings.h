#ifndef VGPU_HOST_POLICY_SETTINGS_H
#define VGPU_HOST_POLICY_SETTINGS_H

#include "host/policy/policy.h"

/* Limits, devices=, vm-memory= and processes=. */
#define VGPU_POLICY_KEYS 11u

/* Where a setting is. line 0: not given. `value` points into the file's text. */
struct vgpu_policy_given {
  uint32_t line;
  const char *value;
};

struct vgpu_policy_reader {
  struct vgpu_policy *policy;
  const char *name;
  uint32_t line;
  struct vgpu_peer_limits usual;                          /* of the `limits` lines so far */
  struct vgpu_policy_given usual_given[VGPU_POLICY_KEYS]; /* by `limits` lines since the last "allow" */
  struct vgpu_policy_given rule_given[VGPU_POLICY_KEYS];  /* by this line */
  char *error;
  size_t error_size;
};

/* Stores the reason with the file's name and line in the reader's `error`. Always returns false. */
__attribute__((format(printf, 2, 3))) bool vgpu_policy_wrong(struct vgpu_policy_reader *reader,
                                                             const char *format, ...);

/*
 * Reads one "KEY=VALUE" into `rule` or `into`, and changes `word` while it parses. `rule` is NULL in a
 * `limits` line. False: the reason is stored.
 */
bool vgpu_policy_setting(struct vgpu_policy_reader *reader, char *word, struct vgpu_rule *rule,
                         struct vgpu_peer_limits *into);

#endif

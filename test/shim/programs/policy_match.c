/*
 * Reads a hostd.conf as the daemon does and says what becomes of a peer.
 *
 *   policy_match FILE unix UID GID PID [GROUP...]   or: FILE vsock CID   or: FILE tcp
 *
 * Prints "allow LINE sessions connects memory outstanding calls", "deny LINE" or "none"; exit 2 with the
 * error on stderr when the file is not good. A limit that the file does not name is "usual".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/policy/policy.h"
#include "wire/address.h"

static struct vgpu_policy policy;

static uint32_t number(const char *text) {
  return (uint32_t)strtoul(text, NULL, 10);
}

/* Returns the number as text, or "usual". */
static const char *usual(uint32_t limit) {
  static char numbers[2][12];
  static int next;
  if (limit == VGPU_LIMIT_USUAL) return "usual";
  char *number_text = numbers[next++ % 2];
  snprintf(number_text, sizeof numbers[0], "%u", limit);
  return number_text;
}

int main(int count, char **words) {
  char error[512];
  if (count < 3 || vgpu_policy_read(&policy, words[1], error, sizeof error) != VGPU_POLICY_GOOD) {
    fprintf(stderr, "%s\n", count < 3 ? "usage" : error);
    return 2;
  }
  struct vgpu_identity who = {0};
  if (strcmp(words[2], "unix") == 0 && count >= 6) {
    who.peer = (struct vgpu_peer){.kind = VGPU_ADDRESS_UNIX, .id = number(words[3])};
    who.uid = number(words[3]);
    who.gid = number(words[4]);
    who.pid = number(words[5]);
    for (int i = 6; i < count && who.group_count < VGPU_PEER_GROUPS_MAX; i++)
      who.groups[who.group_count++] = number(words[i]);
  } else if (strcmp(words[2], "vsock") == 0 && count == 4) {
    who.peer = (struct vgpu_peer){.kind = VGPU_ADDRESS_VSOCK, .id = number(words[3])};
  } else {
    who.peer = (struct vgpu_peer){.kind = VGPU_ADDRESS_TCP};
  }
  const struct vgpu_rule *rule = vgpu_policy_match(&policy, &who);
  if (rule == NULL) puts("none");
  else if (!rule->allow) printf("deny %u\n", rule->line);
  else
    printf("allow %u %s %s %llu %llu %u\n", rule->line, usual(rule->limits.sessions),
           usual(rule->limits.connects), (unsigned long long)rule->limits.memory,
           (unsigned long long)rule->limits.outstanding, rule->limits.calls);
  return 0;
}

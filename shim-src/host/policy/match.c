#include "host/policy/policy.h"

#include "wire/address.h"

static bool in(const struct vgpu_numbers *numbers, uint32_t value) {
  if (numbers->count == 0) return true;
  for (uint32_t i = 0; i < numbers->count; i++) {
    if (value >= numbers->ranges[i].first && value <= numbers->ranges[i].last) return true;
  }
  return false;
}

static bool in_group(const struct vgpu_rule *rule, const struct vgpu_identity *identity) {
  const struct vgpu_numbers *numbers = &rule->gid;
  if (in(numbers, identity->gid)) return true;
  if (identity->groups_unknown) return !rule->allow;
  for (uint32_t i = 0; i < identity->group_count; i++) {
    if (in(numbers, identity->groups[i])) return true;
  }
  return false;
}

const struct vgpu_rule *vgpu_policy_match(const struct vgpu_policy *policy,
                                          const struct vgpu_identity *identity) {
  for (uint32_t i = 0; i < policy->count; i++) {
    const struct vgpu_rule *rule = &policy->rules[i];
    if (rule->kind != 0 && rule->kind != identity->peer.kind) continue;
    if (rule->kind == VGPU_ADDRESS_UNIX &&
        !(in(&rule->uid, identity->uid) && in_group(rule, identity) && in(&rule->pid, identity->pid)))
      continue;
    if (rule->kind == VGPU_ADDRESS_VSOCK && !in(&rule->cid, identity->peer.id)) continue;
    return rule;
  }
  return NULL;
}

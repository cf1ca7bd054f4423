#include "host/policy/settings.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "wire/address.h"

/* Reads decimal digits. Returns their end; NULL: none, or a value above `most`. */
static const char *digits(const char *text, uint64_t most, uint64_t *value) {
  if (*text < '0' || *text > '9') return NULL;
  *value = 0;
  for (; *text >= '0' && *text <= '9'; text++) {
    uint64_t digit = (uint64_t)(*text - '0');
    if (*value > (most - digit) / 10) return NULL;
    *value = *value * 10 + digit;
  }
  return text;
}

static bool user_number(const char *name, uint32_t *value) {
  const struct passwd *user = getpwnam(name);
  if (user != NULL) *value = user->pw_uid;
  return user != NULL;
}

static bool group_number(const char *name, uint32_t *value) {
  const struct group *group = getgrnam(name);
  if (group != NULL) *value = group->gr_gid;
  return group != NULL;
}

struct match {
  const char *key;
  const char *what;
  uint32_t kind; /* kinds of peers that have the number */
  size_t offset; /* in struct vgpu_rule */
  bool (*by_name)(const char *name, uint32_t *value);
};

static const struct match matches[] = {
    {"uid", "a user", VGPU_ADDRESS_UNIX, offsetof(struct vgpu_rule, uid), user_number},
    {"gid", "a group", VGPU_ADDRESS_UNIX, offsetof(struct vgpu_rule, gid), group_number},
    {"pid", "a process", VGPU_ADDRESS_UNIX, offsetof(struct vgpu_rule, pid), NULL},
    {"cid", "a machine", VGPU_ADDRESS_VSOCK, offsetof(struct vgpu_rule, cid), NULL},
};

/* "7", "7-9" or a name, up to `end`. */
static bool range(struct vgpu_policy_reader *reader, const struct match *match, const char *text,
                  struct vgpu_numbers *numbers) {
  uint64_t first = 0, last = 0;
  const char *rest = digits(text, UINT32_MAX, &first);
  last = first;
  if (rest != NULL && *rest == '-') rest = digits(rest + 1, UINT32_MAX, &last);
  if (rest == NULL || *rest != '\0') {
    uint32_t found = 0;
    if (*text < '0' || *text > '9') {
      if (match->by_name == NULL || *text == '\0' || *text == '-')
        return vgpu_policy_wrong(reader, "%s=\"%s\" is neither a number nor a range (3-9)", match->key, text);
      if (!match->by_name(text, &found))
        return vgpu_policy_wrong(
            reader, "%s=\"%s\" is neither a number nor a range (3-9) nor the name of %s of this host",
            match->key, text, match->what);
      first = last = found;
    } else {
      return vgpu_policy_wrong(reader, "%s=\"%s\" is neither a number up to %u nor a range (3-9)", match->key,
                               text, UINT32_MAX);
    }
  }
  if (last < first)
    return vgpu_policy_wrong(reader, "%s=\"%s\" is a range whose end comes first", match->key, text);
  if (numbers->count == VGPU_POLICY_RANGES_MAX)
    return vgpu_policy_wrong(reader, "%s= has more than %u numbers or ranges: use another line", match->key,
                             VGPU_POLICY_RANGES_MAX);
  numbers->ranges[numbers->count++] =
      (struct vgpu_number_range){.first = (uint32_t)first, .last = (uint32_t)last};
  return true;
}

static bool numbers(struct vgpu_policy_reader *reader, const struct match *match, char *text,
                    struct vgpu_rule *rule) {
  struct vgpu_numbers *into = (struct vgpu_numbers *)((char *)rule + match->offset);
  if (into->count != 0)
    return vgpu_policy_wrong(reader, "%s= is given twice: separate numbers by commas", match->key);
  for (char *part = text; part != NULL;) {
    char *comma = strchr(part, ',');
    if (comma != NULL) *comma = '\0';
    if (!range(reader, match, part, into)) return false;
    part = comma == NULL ? NULL : comma + 1;
  }
  return true;
}

struct limit {
  const char *key;
  uint64_t most;
  bool bytes;
  bool zero; /* 0 is allowed, and means no limit */
};

static const struct limit limits[] = {{"sessions", VGPU_SESSIONS_MAX, false, false},
                                      {"connects", 1000000, false, false},
                                      {"memory", 1ull << 50, true, false},
                                      {"outstanding", 1ull << 40, true, false},
                                      {"calls", 1000000000, false, false},
                                      {"reconnect", 86400, false, true},
                                      {"weight", 10000, false, false},
                                      {"share", 100, false, false}};

static void set_limit(struct vgpu_peer_limits *into, const struct limit *limit, uint64_t value) {
  switch (limit - limits) {
    case 0:
      into->sessions = (uint32_t)value;
      break;
    case 1:
      into->connects = (uint32_t)value;
      break;
    case 2:
      into->memory = value;
      break;
    case 3:
      into->outstanding = value;
      break;
    case 4:
      into->calls = (uint32_t)value;
      break;
    case 5:
      into->reconnect = (uint32_t)value;
      break;
    case 6:
      into->weight = value == 0 ? VGPU_WEIGHT_USUAL : (uint32_t)value;
      break;
    default:
      into->share = (uint32_t)value;
      break;
  }
}

static bool limit_value(struct vgpu_policy_reader *reader, const struct limit *limit, const char *text,
                        struct vgpu_peer_limits *into) {
  if (strcmp(text, "none") == 0) {
    set_limit(into, limit, 0);
    return true;
  }
  uint64_t value = 0;
  const char *rest = digits(text, limit->most, &value);
  if (rest != NULL && limit->bytes && *rest != '\0' && rest[1] == '\0') {
    const char *units = "KMGT", *unit = strchr(units, *rest);
    unsigned shift = unit == NULL ? 0 : 10 * (unsigned)(unit - units + 1);
    if (unit != NULL && value <= limit->most >> shift) {
      value <<= shift;
      rest++;
    }
  }
  if (rest == NULL || *rest != '\0' || (value == 0 && !limit->zero))
    return vgpu_policy_wrong(reader, "%s=\"%s\" is not a number from %d to %llu%s, nor none", limit->key,
                             text, limit->zero ? 0 : 1, (unsigned long long)limit->most,
                             limit->bytes ? " (K, M, G or T may follow)" : "");
  set_limit(into, limit, value);
  return true;
}

enum { KEY_DEVICES = sizeof limits / sizeof *limits, KEY_VM_MEMORY, KEY_PROCESSES, KEYS };
_Static_assert(KEYS == VGPU_POLICY_KEYS, "each key has its place in struct vgpu_policy_reader");

/* A setting that occurs twice is an error, because one of the values would be ignored. */
static bool given_once(struct vgpu_policy_reader *reader, size_t key, const char *name, const char *value,
                       const struct vgpu_rule *rule) {
  struct vgpu_policy_given *given = (rule == NULL ? reader->usual_given : reader->rule_given) + key;
  if (given->line != 0)
    return vgpu_policy_wrong(reader, "%s=%.64s, but line %u says %s=%.64s: remove one of them", name, value,
                             given->line, name, given->value);
  *given = (struct vgpu_policy_given){.line = reader->line, .value = value};
  return true;
}

static const struct limit *find_limit(const char *key) {
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    if (strcmp(limits[i].key, key) == 0) return &limits[i];
  }
  return NULL;
}

static const struct match *find_match(const char *key) {
  for (size_t i = 0; i < sizeof matches / sizeof *matches; i++) {
    if (strcmp(matches[i].key, key) == 0) return &matches[i];
  }
  return NULL;
}

static bool is_device(const char *word) {
  size_t length = strlen(word);
  if (length == 0 || length > 40) return false;
  if (word[0] >= '0' && word[0] <= '9') return length <= 3 && strspn(word, "0123456789") == length;
  if (strncasecmp(word, "GPU-", 4) != 0 && strncasecmp(word, "MIG-", 4) != 0) return false;
  return length > 4 && strspn(word + 4, "0123456789abcdefABCDEF-") == length - 4;
}

/* Reads a choice of devices. devices.h finds the devices later, when those of the host are known. */
static bool devices(struct vgpu_policy_reader *reader, const char *text, struct vgpu_peer_limits *into) {
  char words[VGPU_DEVICES_TEXT], *rest = words;
  into->choice = 0;
  if (strcmp(text, "all") == 0) return true;
  if (strlen(text) >= sizeof words)
    return vgpu_policy_wrong(reader, "devices= is longer than %zu bytes", sizeof words - 1);
  strcpy(words, text);
  for (char *word = strsep(&rest, ","); word != NULL; word = strsep(&rest, ",")) {
    if (!is_device(word))
      return vgpu_policy_wrong(
          reader,
          "devices=\"%.64s\": \"%.64s\" is neither the index of a device nor a UUID (GPU-..., MIG-...); "
          "\"all\" is every device",
          text, word);
  }
  struct vgpu_policy *policy = reader->policy;
  uint32_t at = 0;
  while (at < policy->choice_count && strcmp(policy->choices[at].text, text) != 0) at++;
  if (at == VGPU_POLICY_CHOICES_MAX)
    return vgpu_policy_wrong(reader, "more than %u different devices=", VGPU_POLICY_CHOICES_MAX);
  if (at == policy->choice_count) {
    struct vgpu_device_choice *choice = &policy->choices[policy->choice_count++];
    choice->line = reader->line;
    strcpy(choice->text, text);
  }
  into->choice = at + 1;
  return true;
}

/* Reads vm-memory=PATH: memory of one VM, which no other VM may see. */
static bool vm_memory(struct vgpu_policy_reader *reader, const char *path, struct vgpu_rule *rule) {
  if (rule == NULL || !rule->allow)
    return vgpu_policy_wrong(reader, "vm-memory= belongs to one VM: it is allowed only in an \"allow\" line");
  if (*path != '/' || strlen(path) >= sizeof rule->limits.vm_memory)
    return vgpu_policy_wrong(reader, "vm-memory=\"%s\" is not an absolute path of less than %zu bytes", path,
                             sizeof rule->limits.vm_memory);
  for (uint32_t i = 0; i < reader->policy->count; i++) {
    const struct vgpu_rule *other = &reader->policy->rules[i];
    if (strcmp(other->limits.vm_memory, path) == 0)
      return vgpu_policy_wrong(reader,
                               "vm-memory=%s is used in line %u: two VMs would see each other's memory", path,
                               other->line);
  }
  snprintf(rule->limits.vm_memory, sizeof rule->limits.vm_memory, "%s", path);
  return true;
}

/* processes=all: for a user who accounts for the others, such as root of a cluster's node. */
static bool processes(struct vgpu_policy_reader *reader, const char *value, struct vgpu_rule *rule) {
  if (rule == NULL || !rule->allow || rule->kind != VGPU_ADDRESS_UNIX)
    return vgpu_policy_wrong(reader, "processes= is allowed only in an \"allow unix\" line");
  if (strcmp(value, "all") != 0)
    return vgpu_policy_wrong(reader, "processes=\"%.64s\": only \"all\" is allowed", value);
  return rule->limits.all_processes = true;
}

bool vgpu_policy_setting(struct vgpu_policy_reader *reader, char *word, struct vgpu_rule *rule,
                         struct vgpu_peer_limits *into) {
  char *value = strchr(word, '=');
  if (value == NULL) return vgpu_policy_wrong(reader, "\"%s\" is not KEY=VALUE", word);
  *value++ = '\0';
  const struct limit *limit = find_limit(word);
  if (limit != NULL) {
    if (rule != NULL && !rule->allow)
      return vgpu_policy_wrong(reader, "%s= has no meaning for a peer that is denied", word);
    return given_once(reader, (size_t)(limit - limits), word, value, rule) &&
           limit_value(reader, limit, value, into);
  }
  if (strcmp(word, "devices") == 0) {
    if (rule != NULL && !rule->allow)
      return vgpu_policy_wrong(reader, "%s= has no meaning for a peer that is denied", word);
    return given_once(reader, KEY_DEVICES, word, value, rule) && devices(reader, value, into);
  }
  if (strcmp(word, "vm-memory") == 0)
    return given_once(reader, KEY_VM_MEMORY, word, value, rule) && vm_memory(reader, value, rule);
  if (strcmp(word, "processes") == 0)
    return given_once(reader, KEY_PROCESSES, word, value, rule) && processes(reader, value, rule);
  const struct match *match = find_match(word);
  if (match == NULL || rule == NULL)
    return vgpu_policy_wrong(
        reader, "unknown setting \"%s\"%s", word,
        rule == NULL
            ? ": limits are sessions, connects, memory, outstanding, calls, weight, share, reconnect, devices"
            : "");
  if (rule->kind != match->kind)
    return vgpu_policy_wrong(reader, "%s= is for %s peers only", word,
                             match->kind == VGPU_ADDRESS_UNIX ? "unix" : "vsock");
  return numbers(reader, match, value, rule);
}

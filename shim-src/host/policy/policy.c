#include "host/policy/policy.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire/address.h"

#define WORDS_MAX 32u

struct reader {
  struct vgpu_policy *policy;
  const char *name;
  uint32_t line;
  struct vgpu_peer_limits usual; /* of the `limits` lines so far */
  char *error;
  size_t error_size;
};

__attribute__((format(printf, 2, 3))) static bool wrong(struct reader *reader, const char *format, ...) {
  char what[320];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  if (reader->line == 0) snprintf(reader->error, reader->error_size, "%s: %s", reader->name, what);
  else snprintf(reader->error, reader->error_size, "%s: line %u: %s", reader->name, reader->line, what);
  return false;
}

/* Decimal digits at the start of `text`; NULL: none, or more than `most`. */
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
  uint32_t kind; /* of peers that have one */
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
static bool range(struct reader *reader, const struct match *match, const char *text,
                  struct vgpu_numbers *numbers) {
  uint64_t first = 0, last = 0;
  const char *rest = digits(text, UINT32_MAX, &first);
  last = first;
  if (rest != NULL && *rest == '-') rest = digits(rest + 1, UINT32_MAX, &last);
  if (rest == NULL || *rest != '\0') {
    uint32_t found = 0;
    if (*text < '0' || *text > '9') {
      if (match->by_name == NULL || *text == '\0' || *text == '-')
        return wrong(reader, "%s=\"%s\" is neither a number nor a range (3-9)", match->key, text);
      if (!match->by_name(text, &found))
        return wrong(reader,
                     "%s=\"%s\" is neither a number nor a range (3-9) nor the name of %s of this host",
                     match->key, text, match->what);
      first = last = found;
    } else {
      return wrong(reader, "%s=\"%s\" is neither a number up to %u nor a range (3-9)", match->key, text,
                   UINT32_MAX);
    }
  }
  if (last < first) return wrong(reader, "%s=\"%s\" is a range whose end comes first", match->key, text);
  if (numbers->count == VGPU_POLICY_RANGES_MAX)
    return wrong(reader, "%s= has more than %u numbers or ranges: use another line", match->key,
                 VGPU_POLICY_RANGES_MAX);
  numbers->ranges[numbers->count++] =
      (struct vgpu_number_range){.first = (uint32_t)first, .last = (uint32_t)last};
  return true;
}

static bool numbers(struct reader *reader, const struct match *match, char *text, struct vgpu_rule *rule) {
  struct vgpu_numbers *into = (struct vgpu_numbers *)((char *)rule + match->offset);
  if (into->count != 0) return wrong(reader, "%s= is given twice: separate numbers by commas", match->key);
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
  bool zero; /* is a number, too, and the same as none */
};

static const struct limit limits[] = {{"sessions", VGPU_SESSIONS_MAX, false, false},
                                      {"connects", 1000000, false, false},
                                      {"memory", 1ull << 50, true, false},
                                      {"outstanding", 1ull << 40, true, false},
                                      {"calls", 1000000000, false, false},
                                      {"reconnect", 86400, false, true},
                                      {"weight", 10000, false, false}};

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
    default:
      into->weight = value == 0 ? VGPU_WEIGHT_USUAL : (uint32_t)value;
      break;
  }
}

static bool limit_value(struct reader *reader, const struct limit *limit, const char *text,
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
    return wrong(reader, "%s=\"%s\" is not a number from %d to %llu%s, nor none", limit->key, text,
                 limit->zero ? 0 : 1, (unsigned long long)limit->most,
                 limit->bytes ? " (K, M, G or T may follow)" : "");
  set_limit(into, limit, value);
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

/* One device of devices=: an index, or the beginning of a UUID. */
static bool is_device(const char *word) {
  size_t length = strlen(word);
  if (length == 0 || length > 40) return false;
  if (word[0] >= '0' && word[0] <= '9') return length <= 3 && strspn(word, "0123456789") == length;
  if (strncasecmp(word, "GPU-", 4) != 0 && strncasecmp(word, "MIG-", 4) != 0) return false;
  return length > 4 && strspn(word + 4, "0123456789abcdefABCDEF-") == length - 4;
}

/* Reads a choice of devices. devices.h finds the devices later, when those of the host are known. */
static bool devices(struct reader *reader, const char *text, struct vgpu_peer_limits *into) {
  char words[VGPU_DEVICES_TEXT], *rest = words;
  into->choice = 0;
  if (strcmp(text, "all") == 0) return true;
  if (strlen(text) >= sizeof words)
    return wrong(reader, "devices= is longer than %zu bytes", sizeof words - 1);
  strcpy(words, text);
  for (char *word = strsep(&rest, ","); word != NULL; word = strsep(&rest, ",")) {
    if (!is_device(word))
      return wrong(
          reader,
          "devices=\"%.64s\": \"%.64s\" is neither the index of a device nor a UUID (GPU-..., MIG-...); "
          "\"all\" is every device",
          text, word);
  }
  struct vgpu_policy *policy = reader->policy;
  uint32_t at = 0;
  while (at < policy->choice_count && strcmp(policy->choices[at].text, text) != 0) at++;
  if (at == VGPU_POLICY_CHOICES_MAX)
    return wrong(reader, "more than %u different devices=", VGPU_POLICY_CHOICES_MAX);
  if (at == policy->choice_count) {
    struct vgpu_device_choice *choice = &policy->choices[policy->choice_count++];
    choice->line = reader->line;
    strcpy(choice->text, text);
  }
  into->choice = at + 1;
  return true;
}

/* vm-memory=PATH: memory of one VM, which no other may see. */
static bool vm_memory(struct reader *reader, const char *path, struct vgpu_rule *rule) {
  if (rule == NULL || !rule->allow)
    return wrong(reader, "vm-memory= is of one VM: it belongs into an \"allow\" line");
  if (*path != '/' || strlen(path) >= sizeof rule->limits.vm_memory)
    return wrong(reader, "vm-memory=\"%s\" is not an absolute path of less than %zu bytes", path,
                 sizeof rule->limits.vm_memory);
  for (uint32_t i = 0; i < reader->policy->count; i++) {
    const struct vgpu_rule *other = &reader->policy->rules[i];
    if (strcmp(other->limits.vm_memory, path) == 0)
      return wrong(reader, "vm-memory=%s is that of line %u: two VMs would see each other's memory", path,
                   other->line);
  }
  snprintf(rule->limits.vm_memory, sizeof rule->limits.vm_memory, "%s", path);
  return true;
}

static bool is_one(const struct vgpu_numbers *numbers) {
  return numbers->count == 1 && numbers->ranges[0].first == numbers->ranges[0].last;
}

/* One "key=value" of a rule; `rule` is NULL in a `limits` line. */
static bool setting(struct reader *reader, char *word, struct vgpu_rule *rule,
                    struct vgpu_peer_limits *into) {
  char *value = strchr(word, '=');
  if (value == NULL) return wrong(reader, "\"%s\" is not KEY=VALUE", word);
  *value++ = '\0';
  const struct limit *limit = find_limit(word);
  if (limit != NULL) {
    if (rule != NULL && !rule->allow)
      return wrong(reader, "%s= has no meaning for a peer that is denied", word);
    return limit_value(reader, limit, value, into);
  }
  if (strcmp(word, "devices") == 0) {
    if (rule != NULL && !rule->allow)
      return wrong(reader, "%s= has no meaning for a peer that is denied", word);
    return devices(reader, value, into);
  }
  if (strcmp(word, "vm-memory") == 0) return vm_memory(reader, value, rule);
  const struct match *match = find_match(word);
  if (match == NULL || rule == NULL)
    return wrong(
        reader, "\"%s\" is not known here%s", word,
        rule == NULL
            ? ": limits are sessions, connects, memory, outstanding, calls, weight, reconnect, devices"
            : "");
  if (rule->kind != match->kind)
    return wrong(reader, "%s= is of %s peers only", word,
                 match->kind == VGPU_ADDRESS_UNIX ? "unix" : "vsock");
  return numbers(reader, match, value, rule);
}

static bool rule_of(struct reader *reader, char **words, size_t count, bool allow) {
  struct vgpu_policy *policy = reader->policy;
  if (policy->count == VGPU_POLICY_RULES_MAX)
    return wrong(reader, "more than %u rules", VGPU_POLICY_RULES_MAX);
  if (count < 2) return wrong(reader, "\"%s\" needs a kind of peer: unix, vsock, tcp or any", words[0]);
  struct vgpu_rule *rule = &policy->rules[policy->count];
  *rule = (struct vgpu_rule){.allow = allow, .line = reader->line, .limits = reader->usual};
  if (strcmp(words[1], "unix") == 0) rule->kind = VGPU_ADDRESS_UNIX;
  else if (strcmp(words[1], "vsock") == 0) rule->kind = VGPU_ADDRESS_VSOCK;
  else if (strcmp(words[1], "tcp") == 0) rule->kind = VGPU_ADDRESS_TCP;
  else if (strcmp(words[1], "any") != 0)
    return wrong(reader, "\"%s\" is none of unix, vsock, tcp and any", words[1]);
  for (size_t i = 2; i < count; i++) {
    if (!setting(reader, words[i], rule, &rule->limits)) return false;
  }
  if (*rule->limits.vm_memory != '\0' && !is_one(&rule->cid) && !is_one(&rule->uid) && !is_one(&rule->pid))
    return wrong(reader,
                 "vm-memory= is of one VM: say which, with cid=NUMBER (behind a proxy: uid= or pid=)");
  policy->count++;
  return true;
}

/* workers user=NAME: whether there is such a user is found out when workers are prepared. */
static bool workers(struct reader *reader, char **words, size_t count) {
  struct vgpu_policy *policy = reader->policy;
  const char *value = count == 2 && strncmp(words[1], "user=", 5) == 0 ? words[1] + 5 : NULL;
  if (value == NULL) return wrong(reader, "\"workers\" wants user=NAME and nothing else");
  if (policy->user[0] != '\0') return wrong(reader, "\"workers\" is given twice");
  if (*value == '\0' || strlen(value) >= sizeof policy->user)
    return wrong(reader, "user=\"%.80s\" is not the name of a user, nor a number", value);
  strcpy(policy->user, value);
  return true;
}

static bool parse_line(struct reader *reader, char *line) {
  char *words[WORDS_MAX];
  size_t count = 0;
  line[strcspn(line, "#")] = '\0';
  for (char *at = line; *(at += strspn(at, " \t\r")) != '\0';) {
    if (count == WORDS_MAX) return wrong(reader, "more than %u words", WORDS_MAX);
    words[count++] = at;
    at += strcspn(at, " \t\r");
    if (*at != '\0') *at++ = '\0';
  }
  if (count == 0) return true;
  if (strcmp(words[0], "allow") == 0) return rule_of(reader, words, count, true);
  if (strcmp(words[0], "deny") == 0) return rule_of(reader, words, count, false);
  if (strcmp(words[0], "workers") == 0) return workers(reader, words, count);
  if (strcmp(words[0], "limits") != 0)
    return wrong(reader, "\"%s\" is none of allow, deny, limits and workers", words[0]);
  if (count == 1) return wrong(reader, "\"limits\" without any");
  for (size_t i = 1; i < count; i++) {
    if (!setting(reader, words[i], NULL, &reader->usual)) return false;
  }
  return true;
}

bool vgpu_policy_parse(struct vgpu_policy *policy, const char *name, const char *text, size_t size,
                       char *error, size_t error_size) {
  struct reader reader = {
      .policy = policy, .name = name, .usual = VGPU_USUAL_LIMITS, .error = error, .error_size = error_size};
  policy->count = policy->choice_count = 0;
  policy->user[0] = '\0';
  if (size > VGPU_POLICY_BYTES_MAX) return wrong(&reader, "longer than %u bytes", VGPU_POLICY_BYTES_MAX);
  char *copy = malloc(size + 1);
  if (copy == NULL) return wrong(&reader, "no memory");
  memcpy(copy, text, size);
  copy[size] = '\0';
  bool good = true;
  for (char *line = copy; good && line < copy + size;) {
    size_t length = strcspn(line, "\n");
    reader.line++;
    if (line[length] == '\0' && line + length < copy + size) good = wrong(&reader, "a zero byte");
    line[length] = '\0';
    if (good) good = parse_line(&reader, line);
    line += length + 1;
  }
  free(copy);
  return good;
}

enum vgpu_policy_result vgpu_policy_read(struct vgpu_policy *policy, const char *path, char *error,
                                         size_t error_size) {
  struct reader reader = {.policy = policy, .name = path, .error = error, .error_size = error_size};
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) {
    int reason = errno;
    wrong(&reader, "%s", strerror(reason));
    return reason == ENOENT ? VGPU_POLICY_ABSENT : VGPU_POLICY_BAD;
  }
  struct stat info;
  char *text = NULL;
  size_t filled = 0;
  bool good = fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
  if (!good) wrong(&reader, "not a file");
  else text = malloc(VGPU_POLICY_BYTES_MAX + 1);
  while (good && text != NULL && filled <= VGPU_POLICY_BYTES_MAX) {
    ssize_t got = read(descriptor, text + filled, VGPU_POLICY_BYTES_MAX + 1 - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) good = wrong(&reader, "%s", strerror(errno));
    if (got <= 0) break;
    filled += (size_t)got;
  }
  if (good && text == NULL) good = wrong(&reader, "no memory");
  if (good) good = vgpu_policy_parse(policy, path, text, filled, error, error_size);
  free(text);
  close(descriptor);
  return good ? VGPU_POLICY_GOOD : VGPU_POLICY_BAD;
}

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

#include "host/policy/policy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/policy/settings.h"
#include "wire/address.h"

#define WORDS_MAX 32u
#define LOOK_NS 20000000l /* between two checks of a file that may be in the middle of a change */

bool vgpu_policy_wrong(struct vgpu_policy_reader *reader, const char *format, ...) {
  char what[320];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  if (reader->line == 0) snprintf(reader->error, reader->error_size, "%s: %s", reader->name, what);
  else snprintf(reader->error, reader->error_size, "%s: line %u: %s", reader->name, reader->line, what);
  return false;
}

static bool is_one(const struct vgpu_numbers *numbers) {
  return numbers->count == 1 && numbers->ranges[0].first == numbers->ranges[0].last;
}

static bool rule_of(struct vgpu_policy_reader *reader, char **words, size_t count, bool allow) {
  struct vgpu_policy *policy = reader->policy;
  if (policy->count == VGPU_POLICY_RULES_MAX)
    return vgpu_policy_wrong(reader, "more than %u rules", VGPU_POLICY_RULES_MAX);
  if (count < 2)
    return vgpu_policy_wrong(reader, "\"%s\" needs a kind of peer: unix, vsock, tcp or any", words[0]);
  struct vgpu_rule *rule = &policy->rules[policy->count];
  memset(reader->rule_given, 0, sizeof reader->rule_given);
  *rule = (struct vgpu_rule){.allow = allow, .line = reader->line, .limits = reader->usual};
  if (strcmp(words[1], "unix") == 0) rule->kind = VGPU_ADDRESS_UNIX;
  else if (strcmp(words[1], "vsock") == 0) rule->kind = VGPU_ADDRESS_VSOCK;
  else if (strcmp(words[1], "tcp") == 0) rule->kind = VGPU_ADDRESS_TCP;
  else if (strcmp(words[1], "any") != 0)
    return vgpu_policy_wrong(reader, "\"%s\" is not unix, vsock, tcp or any", words[1]);
  for (size_t i = 2; i < count; i++) {
    if (!vgpu_policy_setting(reader, words[i], rule, &rule->limits)) return false;
  }
  if (*rule->limits.vm_memory != '\0' && !is_one(&rule->cid) && !is_one(&rule->uid) && !is_one(&rule->pid))
    return vgpu_policy_wrong(reader,
                             "vm-memory= belongs to one VM: add cid=NUMBER (behind a proxy: uid= or pid=)");
  /* A later `limits` line may set other values, for the lines below it. */
  if (allow) memset(reader->usual_given, 0, sizeof reader->usual_given);
  policy->count++;
  return true;
}

static bool workers_word(struct vgpu_policy_reader *reader, char *word) {
  struct vgpu_policy *policy = reader->policy;
  char *value = strchr(word, '=');
  if (value != NULL) *value++ = '\0';
  bool user = strcmp(word, "user") == 0;
  if (value == NULL || (!user && strcmp(word, "mps") != 0))
    return vgpu_policy_wrong(reader, "\"workers\" needs user=NAME or mps=DIRECTORY, not \"%.80s\"", word);
  char *into = user ? policy->user : policy->mps;
  size_t room = user ? sizeof policy->user : sizeof policy->mps;
  if (*into != '\0') return vgpu_policy_wrong(reader, "\"workers\" with %s= is given twice", word);
  if (user && (*value == '\0' || strlen(value) >= room))
    return vgpu_policy_wrong(reader, "user=\"%.80s\" is not the name of a user, nor a number", value);
  if (!user && (*value != '/' || strlen(value) >= room))
    return vgpu_policy_wrong(reader, "mps=\"%.80s\" is not an absolute path of less than %zu bytes", value,
                             room);
  strcpy(into, value);
  return true;
}

/* The user and the directory are checked when workers are prepared. */
static bool workers(struct vgpu_policy_reader *reader, char **words, size_t count) {
  if (count < 2) return vgpu_policy_wrong(reader, "\"workers\" needs user=NAME or mps=DIRECTORY");
  for (size_t i = 1; i < count; i++)
    if (!workers_word(reader, words[i])) return false;
  return true;
}

static bool parse_line(struct vgpu_policy_reader *reader, char *line) {
  char *words[WORDS_MAX];
  size_t count = 0;
  line[strcspn(line, "#")] = '\0';
  for (char *at = line; *(at += strspn(at, " \t\r")) != '\0';) {
    if (count == WORDS_MAX) return vgpu_policy_wrong(reader, "more than %u words", WORDS_MAX);
    words[count++] = at;
    at += strcspn(at, " \t\r");
    if (*at != '\0') *at++ = '\0';
  }
  if (count == 0) return true;
  if (strcmp(words[0], "allow") == 0) return rule_of(reader, words, count, true);
  if (strcmp(words[0], "deny") == 0) return rule_of(reader, words, count, false);
  if (strcmp(words[0], "workers") == 0) return workers(reader, words, count);
  if (strcmp(words[0], "limits") != 0)
    return vgpu_policy_wrong(reader, "\"%s\" is not allow, deny, limits or workers", words[0]);
  if (count == 1) return vgpu_policy_wrong(reader, "\"limits\" needs at least one limit");
  for (size_t i = 1; i < count; i++) {
    if (!vgpu_policy_setting(reader, words[i], NULL, &reader->usual)) return false;
  }
  return true;
}

bool vgpu_policy_parse(struct vgpu_policy *policy, const char *name, const char *text, size_t size,
                       char *error, size_t error_size) {
  struct vgpu_policy_reader reader = {
      .policy = policy, .name = name, .usual = VGPU_USUAL_LIMITS, .error = error, .error_size = error_size};
  policy->count = policy->choice_count = 0;
  policy->user[0] = policy->mps[0] = '\0';
  if (size > VGPU_POLICY_BYTES_MAX)
    return vgpu_policy_wrong(&reader, "longer than %u bytes", VGPU_POLICY_BYTES_MAX);
  char *copy = malloc(size + 1);
  if (copy == NULL) return vgpu_policy_wrong(&reader, "no memory");
  memcpy(copy, text, size);
  copy[size] = '\0';
  bool good = true;
  for (char *line = copy; good && line < copy + size;) {
    size_t length = strcspn(line, "\n");
    reader.line++;
    if (line[length] == '\0' && line + length < copy + size) good = vgpu_policy_wrong(&reader, "a zero byte");
    line[length] = '\0';
    if (good) good = parse_line(&reader, line);
    line += length + 1;
  }
  free(copy);
  return good;
}

enum vgpu_policy_result vgpu_policy_read(struct vgpu_policy *policy, const char *path, char *error,
                                         size_t error_size) {
  struct vgpu_policy_reader reader = {
      .policy = policy, .name = path, .error = error, .error_size = error_size};
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) {
    int reason = errno;
    vgpu_policy_wrong(&reader, "%s", strerror(reason));
    return reason == ENOENT ? VGPU_POLICY_ABSENT : VGPU_POLICY_BAD;
  }
  struct stat info;
  char *text = NULL;
  size_t filled = 0;
  bool good = fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
  if (!good) vgpu_policy_wrong(&reader, "not a file");
  else text = malloc(VGPU_POLICY_BYTES_MAX + 1);
  while (good && text != NULL && filled <= VGPU_POLICY_BYTES_MAX) {
    ssize_t got = read(descriptor, text + filled, VGPU_POLICY_BYTES_MAX + 1 - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) good = vgpu_policy_wrong(&reader, "%s", strerror(errno));
    if (got <= 0) break;
    filled += (size_t)got;
  }
  if (good && text == NULL) good = vgpu_policy_wrong(&reader, "no memory");
  if (good && filled == 0)
    good = vgpu_policy_wrong(&reader, "the file is empty; \"deny any\" denies everybody");
  if (good) good = vgpu_policy_parse(policy, path, text, filled, error, error_size);
  free(text);
  close(descriptor);
  return good ? VGPU_POLICY_GOOD : VGPU_POLICY_BAD;
}

bool vgpu_policy_is_written(const char *path, char *error, size_t error_size) {
  struct vgpu_policy_reader reader = {.name = path, .error = error, .error_size = error_size};
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  struct stat before, after;
  char last = '\n';
  if (descriptor < 0) return vgpu_policy_wrong(&reader, "%s", strerror(errno));
  bool good = fstat(descriptor, &before) == 0 && S_ISREG(before.st_mode);
  if (good && before.st_size > 0) good = pread(descriptor, &last, 1, before.st_size - 1) == 1;
  const struct timespec look = {.tv_nsec = LOOK_NS};
  nanosleep(&look, NULL);
  /* Compares with the file that has the name now: an editor may have replaced it. */
  good = good && stat(path, &after) == 0 && after.st_ino == before.st_ino &&
         after.st_size == before.st_size && after.st_mtim.tv_sec == before.st_mtim.tv_sec &&
         after.st_mtim.tv_nsec == before.st_mtim.tv_nsec;
  close(descriptor);
  if (!good) return vgpu_policy_wrong(&reader, "the file changes while it is read");
  if (last == '\n') return true;
  return vgpu_policy_wrong(&reader, "the last line has no newline: the file may be incomplete");
}

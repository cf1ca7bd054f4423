/*
 * The first and only program of a virtual machine that tests vsock: loads the kernel modules named in
 * /modules, runs the command lines in /commands one after the other, tells each exit status on the console,
 * powers off. A command may begin with settings of its environment (NAME=VALUE). A line that begins with "&"
 * starts a command that runs beside the following ones; "as UID COMMAND" runs it as another user. The line
 * "until PATH" waits up to 60 s for a file, "seconds N" so long, and "reboot" ends all processes and reboots.
 * With /disk it hands over to the systemd of the machine's disk instead.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char *environment[] = {"PATH=/bin", "LD_LIBRARY_PATH=/lib/vgpu", "VGPU_HOST=vsock:2:14833",
                              "VGPU_LOG=stderr", NULL};

/* Returns the content of a small file, zero-terminated. */
static char *content(const char *path) {
  static char text[2][1 << 16];
  static int which;
  char *into = text[which++ & 1];
  int file = open(path, O_RDONLY);
  ssize_t got = file < 0 ? -1 : read(file, into, sizeof text[0] - 1);
  if (file >= 0) close(file);
  into[got < 0 ? 0 : got] = '\0';
  return into;
}

static void load_module(const char *name) {
  char path[256];
  snprintf(path, sizeof path, "/modules.d/%s", name);
  int file = open(path, O_RDONLY);
  if (file < 0 || syscall(SYS_finit_module, file, "", 0) != 0) {
    printf("vm: %s: %s\n", name, strerror(errno));
  }
  if (file >= 0) close(file);
}

static void wait_for(const char *path) {
  for (int turn = 0; turn < 600; turn++) {
    if (access(path, F_OK) == 0) return;
    usleep(100000);
  }
  printf("vm: no %s after 60 s\n", path);
}

/* As systemd does it: SIGTERM, a pause, SIGKILL. */
static void reboot_in_order(void) {
  kill(-1, SIGTERM);
  usleep(500000);
  kill(-1, SIGKILL);
  while (waitpid(-1, NULL, 0) > 0) continue;
  printf("vm: reboots\n");
  sleep(1);
  sync();
  reboot(RB_AUTOBOOT);
}

static void become(unsigned user) {
  if (setgroups(0, NULL) == 0 && setgid(user) == 0 && setuid(user) == 0) return;
  printf("vm: user %u: %s\n", user, strerror(errno));
  _exit(126);
}

static void run(char *line) {
  char *words[16];
  int count = 0;
  printf("vm: run %s\n", line);
  if (strncmp(line, "until ", 6) == 0) {
    wait_for(line + 6);
    return;
  }
  if (strncmp(line, "seconds ", 8) == 0) {
    sleep((unsigned)atoi(line + 8));
    return;
  }
  if (strcmp(line, "reboot") == 0) reboot_in_order();
  bool beside = line[0] == '&';
  if (beside) line++;
  for (char *word = strtok(line, " "); word != NULL && count < 15; word = strtok(NULL, " "))
    words[count++] = word;
  words[count] = NULL;
  if (count == 0) return;
  pid_t child = fork();
  if (child == 0) {
    char **command = words, *with[24];
    int set = 0;
    if (count > 2 && strcmp(words[0], "as") == 0) {
      become((unsigned)atoi(words[1]));
      command += 2;
    }
    /* The first setting of a name is used. */
    while (*command != NULL && **command != '/') with[set++] = *command++;
    for (int i = 0; environment[i] != NULL; i++) with[set++] = environment[i];
    with[set] = NULL;
    if (*command != NULL) execve(*command, command, with);
    printf("vm: %s: %s\n", line, strerror(errno));
    _exit(127);
  }
  if (beside) return;
  int status = 0;
  waitpid(child, &status, 0);
  printf("vm: exit %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

/* Returns only if it fails. */
static void hand_over_to_disk(void) {
  if (mount("/dev/vda", "/disk", "ext4", 0, "") == 0 &&
      mount("/dev", "/disk/dev", NULL, MS_MOVE, NULL) == 0 && chdir("/disk") == 0 &&
      mount(".", "/", NULL, MS_MOVE, NULL) == 0 && chroot(".") == 0)
    execl("/lib/systemd/systemd", "systemd", "--show-status=false", (char *)NULL);
  printf("vm: /dev/vda: %s\n", strerror(errno));
}

int main(void) {
  mkdir("/dev", 0755);
  mkdir("/proc", 0755);
  mkdir("/sys", 0755);
  mkdir("/tmp", 01777);
  mkdir("/run", 0755);
  mount("devtmpfs", "/dev", "devtmpfs", 0, "");
  mount("proc", "/proc", "proc", 0, "");
  mount("sysfs", "/sys", "sysfs", 0, "");
  int console = open("/dev/console", O_RDWR);
  if (console >= 0) {
    dup2(console, 0);
    dup2(console, 1);
    dup2(console, 2);
  }
  setvbuf(stdout, NULL, _IONBF, 0);
  for (char *rest, *name = strtok_r(content("/modules"), "\n", &rest); name != NULL;
       name = strtok_r(NULL, "\n", &rest))
    load_module(name);
  printf("vm: kernel %s", content("/proc/version"));
  if (access("/disk", F_OK) == 0) hand_over_to_disk();
  for (char *rest, *line = strtok_r(content("/commands"), "\n", &rest); line != NULL;
       line = strtok_r(NULL, "\n", &rest))
    run(line);
  printf("vm: done\n");
  sync();
  reboot(RB_POWER_OFF);
  return 1;
}

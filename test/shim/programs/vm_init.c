/*
 * The first and only program of a virtual machine of the tests: loads the kernel modules named in /modules,
 * runs the command lines in /commands one after the other, tells each exit status on the console, powers off.
 *
 * Words are between spaces, or between tabs if there is one. A command may begin with settings of its
 * environment (NAME=VALUE). "& COMMAND" starts one that runs beside the following ones; "as UID COMMAND" runs
 * it as another user. "until PATH" waits up to 60 s for a file, "seconds N" so long, "loopback" brings the
 * network interface lo up, and "reboot" ends all processes and reboots. "from DEVICE" runs the lines that
 * come from a serial port. "kill SIGNAL PID"; "tell SOCKET TEXT": a line for a program that listens there,
 * and its answer; "off" ends "from".
 *
 * With /disk it hands over to the systemd of the machine's disk instead.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/fs.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define READ_AHEAD_SECTORS 8192ul /* of 512 bytes */

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

static void bring_loopback_up(void) {
  struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
  int any = socket(AF_INET, SOCK_DGRAM, 0);
  if (ioctl(any, SIOCSIFFLAGS, &lo) != 0) printf("vm: lo: %s\n", strerror(errno));
  close(any);
}

/*
 * The answer is all that comes until nothing has come for half a second. It is waited for, because qemu drops
 * what it has not read when this end closes.
 */
static void tell(const char *path, const char *text) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
  int line = socket(AF_UNIX, SOCK_STREAM, 0);
  char said[4096];
  if (connect(line, (struct sockaddr *)&at, sizeof at) != 0 || dprintf(line, "%s\n", text) < 0)
    printf("vm: %s: %s\n", path, strerror(errno));
  int limit = 60000;
  for (struct pollfd poller = {.fd = line, .events = POLLIN}; poll(&poller, 1, limit) == 1; limit = 500) {
    ssize_t got = read(line, said, sizeof said);
    if (got <= 0) break;
    printf("%.*s", (int)got, said);
  }
  printf("\nvm: told\n");
  close(line);
}

static void say_how_it_ended(pid_t child, int status) {
  printf("vm: %d ended %d\n", (int)child, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

static void become(unsigned user) {
  if (setgroups(0, NULL) == 0 && setgid(user) == 0 && setuid(user) == 0) return;
  printf("vm: user %u: %s\n", user, strerror(errno));
  _exit(126);
}

static void run(char *line) {
  char *words[64];
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
  if (strcmp(line, "loopback") == 0) {
    bring_loopback_up();
    return;
  }
  int number, victim;
  if (sscanf(line, "kill %d %d", &number, &victim) == 2) {
    if (kill(victim, number) != 0) printf("vm: kill %d: %s\n", victim, strerror(errno));
    return;
  }
  if (strncmp(line, "tell ", 5) == 0) {
    const char *path = strtok(line + 5, " ");
    tell(path, strtok(NULL, ""));
    return;
  }
  bool beside = line[0] == '&';
  if (beside) line += strspn(line, "& ");
  const char *between = strchr(line, '\t') != NULL ? "\t" : " ";
  for (char *word = strtok(line, between); word != NULL && count < 63; word = strtok(NULL, between))
    words[count++] = word;
  words[count] = NULL;
  if (count == 0) return;
  pid_t child = fork();
  if (child == 0) {
    char **command = words, *with[72];
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
  if (beside) {
    printf("vm: beside %d\n", (int)child);
    return;
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("vm: exit %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

/* Runs the lines that come from a serial port, until "off". */
static void run_from(const char *path) {
  static char text[4096];
  size_t filled = 0;
  struct termios raw;
  int port = open(path, O_RDWR | O_NOCTTY);
  if (port < 0 || tcgetattr(port, &raw) != 0) {
    printf("vm: %s: %s\n", path, strerror(errno));
    return;
  }
  cfmakeraw(&raw);
  tcsetattr(port, TCSANOW, &raw);
  printf("vm: listens\n");
  for (;;) {
    struct pollfd poller = {.fd = port, .events = POLLIN};
    int status, ready = poll(&poller, 1, 50);
    for (pid_t ended; (ended = waitpid(-1, &status, WNOHANG)) > 0;) say_how_it_ended(ended, status);
    if (ready <= 0) continue;
    ssize_t got = read(port, text + filled, sizeof text - 1 - filled);
    if (got <= 0) continue;
    filled += (size_t)got;
    text[filled] = '\0';
    for (char *end; (end = strchr(text, '\n')) != NULL;) {
      *end = '\0';
      if (strcmp(text, "off") == 0) return;
      dprintf(port, "taken\n");
      run(text);
      filled -= (size_t)(end + 1 - text);
      memmove(text, end + 1, filled + 1);
    }
  }
}

/* Returns only if it fails. */
static void hand_over_to_disk(void) {
  /* Read in few large blocks: on a busy machine each read waits for qemu's threads, and the guest's clock can
   * run on meanwhile. */
  int disk = open("/dev/vda", O_RDONLY);
  if (ioctl(disk, BLKRASET, READ_AHEAD_SECTORS) != 0) printf("vm: read-ahead: %s\n", strerror(errno));
  close(disk);
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
  mkdir("/dev/shm", 01777);
  mount("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777");
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
       line = strtok_r(NULL, "\n", &rest)) {
    if (strncmp(line, "from ", 5) == 0) run_from(line + 5);
    else run(line);
  }
  printf("vm: done\n");
  sync();
  reboot(RB_POWER_OFF);
  return 1;
}

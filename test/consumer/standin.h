/*
 * The Ollama stand-in: looks for GPUs as real Ollama does, through the libraries that are really
 * there, and logs in real Ollama's words. It runs no model. See README.md.
 */
#ifndef STANDIN_H
#define STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LIBRARY_DIRECTORY "/usr/local/lib/ollama"
#define MAX_DEVICES 16

enum level { LEVEL_TRACE, LEVEL_DEBUG, LEVEL_INFO, LEVEL_WARN };

/* ---- log.c: slog's text lines on stderr ---- */

/* Whether lines of this level are written: OLLAMA_DEBUG=1 adds DEBUG, 2 adds TRACE. */
bool log_wants(enum level level);

/*
 * Writes one line. `fields` are (key, value) pairs, ended by NULL; values are quoted where slog
 * quotes them. A value of NULL leaves its pair out.
 */
void log_line(enum level level, const char *source, const char *message, ...) __attribute__((sentinel));

/* Writes bytes as they are, in one piece. */
void log_bytes(const char *bytes, size_t length);

/* printf into a buffer of the caller's; always terminated. Gives the buffer. */
const char *text(char *buffer, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* "79.2 GiB", as Ollama writes sizes. */
const char *human_bytes(char *buffer, size_t size, uint64_t bytes);

/* ---- settings.c: the environment, and the stand-in's own knobs ---- */

/* The value of a variable; "" when unset. */
const char *setting(const char *name);

/* Seconds that discovery may take for one library directory: 30, or STANDIN_DISCOVERY_TIMEOUT. */
double discovery_timeout(void);

/* Ends the process with status 1 if STANDIN_CRASH names this stage: start, listen or discovered. */
void crash_at(const char *stage);

/* Is the file of STANDIN_BUSY there? */
bool busy(void);

/* Log lines that knobs add before (`after` false) and after the result: noise, lines from files.
 */
void extra_lines(bool after);

/* MemTotal and MemAvailable in bytes. */
void machine_memory(uint64_t *total, uint64_t *available);

/* ---- devices ---- */

struct device {
  int index;
  char name[160];
  char uuid[48]; /* GPU-... */
  int major, minor;
  char pci[24];
  uint64_t total, available; /* bytes */
  int driver;                /* as cuDriverGetVersion says: 13000 */
  int nvidia_driver;         /* NVML's major version; 0 when unknown */
  bool integrated;
  char directory[64]; /* the library directory that found it: cuda_v13 */
};

/* One "inference compute" line as designs 2 and 3 write it; `id` and `filter_id` differ between
 * them. */
void log_device(const struct device *device, const char *id, const char *filter_id, const char *driver);

/* The "inference compute" line of a machine without a GPU, designs 2 and 3. */
void log_cpu(void);

/* ---- child.c ---- */

struct child {
  int status; /* as waitpid gives it */
  bool timed_out;
  double seconds;
  char *out; /* what it wrote, terminated; never NULL */
  char *err;
};

/*
 * Runs a program to its end, or until `deadline` (CLOCK_MONOTONIC seconds), or until `enough`
 * appears in what it writes to stderr, and then kills it. `environment` is a NULL-terminated list
 * of KEY=VALUE to add. At TRACE its output is also passed on to our stderr.
 */
struct child run_child(char *const argv[], char *const environment[], double deadline, const char *enough);
void child_free(struct child *child);

/* Starts a program and leaves it running; it dies with us. Gives its PID, or -1. */
pid_t start_child(char *const argv[], char *const environment[], bool quiet);

/* Monotonic time in seconds. */
double now(void);

/* ---- http.c ---- */

/* Binds and listens on OLLAMA_HOST (127.0.0.1:11434 by default); ends the process when it cannot.
 * Fills `address`. */
int http_listen(char *address, size_t size);

/* Answers requests forever: GET PATH -> `answer(path)`, NULL for 404. */
void http_serve(int listener, const char *(*answer)(const char *path));

/* GET http://127.0.0.1:PORT/PATH. Gives the body (to free), or NULL when there was no answer before
 * `deadline`. */
char *http_get(int port, const char *path, double deadline);

/* ---- the designs: each looks for GPUs and logs what it found; gives the number of devices ---- */

extern const char *const design_version;
extern const int design_number;
int discover(struct device *devices);

/* Children of this binary: runs one if argv asks for it, and does not return then. */
void run_subcommand(int argc, char **argv);

/* The child that stands for a loaded model (STANDIN_KEEP_RUNNER=1). */
void keep_runner(const struct device *devices, int count);

#endif

#ifndef VGPU_IMAGE_LINK_TEXT_H
#define VGPU_IMAGE_LINK_TEXT_H

#include <ctype.h>
#include <string.h>

#include "image/link_ptx.h"

struct piece {
  const char *at;
  size_t length;
};

enum linkage { OF_TEXT, EXTERNAL, VISIBLE, WEAK };
enum kind { HEADER, DEBUG, DECLARATION, VARIABLE, FUNCTION, OTHER };

struct statement {
  struct piece all;
  struct piece name; /* name that it declares or defines */
  size_t text;
  enum kind kind;
  enum linkage linkage;
  bool shared; /* a variable in shared memory */
  bool left_out;
};

struct names {
  struct piece *list;
  size_t count;
};

struct linker {
  const struct vgpu_ptx_text *texts;
  struct names *renamed; /* for each text: its own names that another text has, too */
  struct statement *statements;
  size_t count;
  char *out;
  size_t length, room;
  char *why;
  size_t why_size;
};

/* Writes an error for the program to the linker's `why`. Returns false. */
__attribute__((format(printf, 2, 3))) bool vgpu_link_fail(struct linker *linker, const char *format, ...);

/* Returns the next token from *at on: a comment, a string, a word (with its leading dot), or one byte. */
struct piece vgpu_link_token(const char **at, const char *end);

struct piece vgpu_link_rest_of_line(const char *start, const char **at, const char *end);

/* Cuts the text number `index` into statements. False: the linker's `why` has the error. */
bool vgpu_link_read(struct linker *linker, size_t index);

/*
 * Returns the definition to which a name in a text refers: its own, or one that another text makes visible.
 */
const struct statement *vgpu_link_definition(const struct linker *linker, const struct statement *of);

/* Writes the best of the texts' lines that begin with the word, such as .version. */
bool vgpu_link_put_header(struct linker *linker, const char *word);

bool vgpu_link_put_kind(struct linker *linker, enum kind kind);

static inline bool same(struct piece a, struct piece b) {
  return a.length == b.length && memcmp(a.at, b.at, a.length) == 0;
}

static inline bool is(struct piece piece, const char *word) {
  return same(piece, (struct piece){word, strlen(word)});
}

static inline bool is_name_byte(char c) {
  return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

static inline bool is_comment(struct piece piece) {
  return piece.length >= 2 && piece.at[0] == '/' && (piece.at[1] == '/' || piece.at[1] == '*');
}

#endif

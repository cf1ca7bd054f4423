/*
 * A table of ranges of addresses, sorted and without overlaps: one definition for the tables of both ends.
 * A table is a structure with `array`, `count` and `capacity`; an element has an address, whose name is
 * `start`, and a `size`. Behind VGPU_SORTED_RANGES a file has these static functions for its own table:
 *
 *   size_t upper_bound(table, address)      number of elements that start at or below the address
 *   bool make_room(table)                   for one more; false: no memory
 *   void insert(table, element)             with room made
 *   void remove_at(table, index)
 */
#ifndef VGPU_SORTED_RANGES_H
#define VGPU_SORTED_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VGPU_SORTED_RANGES(table_type, element_type, start)                                                  \
  static size_t upper_bound(const table_type *table, uint64_t address) {                                     \
    size_t low = 0, high = table->count;                                                                     \
    while (low < high) {                                                                                     \
      size_t middle = low + (high - low) / 2;                                                                \
      if (table->array[middle].start <= address) low = middle + 1;                                           \
      else high = middle;                                                                                    \
    }                                                                                                        \
    return low;                                                                                              \
  }                                                                                                          \
  static bool make_room(table_type *table) {                                                                 \
    if (table->count < table->capacity) return true;                                                         \
    size_t capacity = table->capacity == 0 ? 64 : table->capacity * 2;                                       \
    element_type *array = realloc(table->array, capacity * sizeof *array);                                   \
    if (array == NULL) return false;                                                                         \
    table->array = array;                                                                                    \
    table->capacity = capacity;                                                                              \
    return true;                                                                                             \
  }                                                                                                          \
  static void insert(table_type *table, const element_type *element) {                                       \
    size_t at = upper_bound(table, element->start);                                                          \
    memmove(&table->array[at + 1], &table->array[at], (table->count - at) * sizeof *table->array);           \
    table->array[at] = *element;                                                                             \
    table->count++;                                                                                          \
  }                                                                                                          \
  static void remove_at(table_type *table, size_t at) {                                                      \
    table->count--;                                                                                          \
    memmove(&table->array[at], &table->array[at + 1], (table->count - at) * sizeof *table->array);           \
  }

#endif

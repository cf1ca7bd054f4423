/* A function for each slot of unknown purpose, so that VGPU_LOG can name the slot. */
#ifndef VGPU_PRIVATE_REFUSALS_H
#define VGPU_PRIVATE_REFUSALS_H

#include "guest/private/core.h"

// clang-format off
#define EACH_SLOT(F, table)                                                                                  \
  F(table, 1) F(table, 2) F(table, 3) F(table, 4) F(table, 5) F(table, 6) F(table, 7)                        \
  F(table, 8) F(table, 9) F(table, 10) F(table, 11) F(table, 12) F(table, 13) F(table, 14) F(table, 15)      \
  F(table, 16) F(table, 17) F(table, 18) F(table, 19) F(table, 20) F(table, 21) F(table, 22) F(table, 23)    \
  F(table, 24) F(table, 25) F(table, 26) F(table, 27) F(table, 28) F(table, 29) F(table, 30) F(table, 31)    \
  F(table, 32) F(table, 33) F(table, 34) F(table, 35) F(table, 36) F(table, 37) F(table, 38) F(table, 39)    \
  F(table, 40) F(table, 41) F(table, 42) F(table, 43) F(table, 44) F(table, 45) F(table, 46) F(table, 47)    \
  F(table, 48) F(table, 49) F(table, 50) F(table, 51) F(table, 52) F(table, 53) F(table, 54) F(table, 55)    \
  F(table, 56) F(table, 57) F(table, 58) F(table, 59) F(table, 60) F(table, 61) F(table, 62) F(table, 63)    \
  F(table, 64) F(table, 65) F(table, 66) F(table, 67) F(table, 68) F(table, 69) F(table, 70) F(table, 71)    \
  F(table, 72) F(table, 73) F(table, 74) F(table, 75) F(table, 76) F(table, 77) F(table, 78) F(table, 79)    \
  F(table, 80) F(table, 81) F(table, 82) F(table, 83) F(table, 84) F(table, 85) F(table, 86) F(table, 87)    \
  F(table, 88) F(table, 89) F(table, 90) F(table, 91) F(table, 92) F(table, 93) F(table, 94) F(table, 95)    \
  F(table, 96) F(table, 97) F(table, 98) F(table, 99) F(table, 100) F(table, 101) F(table, 102) F(table, 103)\
  F(table, 104) F(table, 105) F(table, 106) F(table, 107) F(table, 108) F(table, 109) F(table, 110) F(table, 111)\
  F(table, 112) F(table, 113) F(table, 114) F(table, 115) F(table, 116) F(table, 117) F(table, 118) F(table, 119)\
  F(table, 120) F(table, 121) F(table, 122) F(table, 123) F(table, 124) F(table, 125) F(table, 126) F(table, 127)
// clang-format on

#define REFUSING(table, slot)                                                                                \
  static int table##_##slot(void) {                                                                          \
    vgpu_private_core_refused(#table, slot);                                                                 \
    return VGPU_PRIVATE_NOT_SUPPORTED;                                                                       \
  }
#define REFUSING_SLOT(table, slot) [slot] = {.call = (function)table##_##slot},

/*
 * The functions for a table of 128 slots, and its initialiser. Known slots come after the initialiser and
 * override it.
 */
#define REFUSALS(table) EACH_SLOT(REFUSING, table)
#define REFUSING_SLOTS(table) EACH_SLOT(REFUSING_SLOT, table)

#endif

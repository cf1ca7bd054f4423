#ifndef VGPU_GUEST_LOG_H
#define VGPU_GUEST_LOG_H

#include <stdbool.h>

bool vgpu_log_wanted(void); /* VGPU_LOG is set */
__attribute__((format(printf, 1, 2))) void vgpu_log(const char *format, ...);

#endif

#ifndef VGPU_HOST_REPORT_H
#define VGPU_HOST_REPORT_H

#include <stdio.h>

#include "host/daemon/supervisor.h"

enum vgpu_report_form { VGPU_REPORT_TABLE, VGPU_REPORT_JSON, VGPU_REPORT_METRICS };

/* With `sessions_only` the table has only the sessions. */
void vgpu_report(FILE *out, const struct vgpu_supervisor *supervisor, enum vgpu_report_form form,
                 bool sessions_only);

#endif

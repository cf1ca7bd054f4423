/* The private tables of cuGetExportTable: docs/reference/private-tables.md. */
#ifndef VGPU_PRIVATE_H
#define VGPU_PRIVATE_H

/*
 * Stores the table with this id in *table, for cuGetExportTable. For an unknown id all slots of the table
 * return an error. Needs no cuInit and no host. Any thread may call.
 */
int vgpu_private_table(const void **table, const unsigned char uuid[16]);

#endif

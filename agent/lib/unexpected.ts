/** For the last catch of a handler: throws the error from an empty stack. The service logs it and goes on; a command ends. */
export function reportUnexpected(error: unknown): void {
  setImmediate(() => {
    throw error;
  });
}

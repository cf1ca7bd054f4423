/**
 * For the last catch of a handler: the error is thrown again where no caller of ours can be harmed. The service logs it and
 * goes on (service/serve.ts); a command ends.
 */
export function reportUnexpected(error: unknown): void {
  setImmediate(() => {
    throw error;
  });
}

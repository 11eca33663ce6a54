/** The connection broke, or there is none to be had. */
export class ConnectionLost extends Error {
  constructor(cause: unknown) {
    super("The connection to the database was lost", { cause });
    this.name = "ConnectionLost";
  }
}

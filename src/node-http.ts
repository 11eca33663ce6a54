/**
 * `node:http` without Node's `fetch`: an import as an ES module reads each of its exports, one of which is a getter that loads
 * all of undici, 11 MB that a gateway has no use for.
 */
export const http = process.getBuiltinModule("node:http");

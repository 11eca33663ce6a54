/**
 * `node:http` without Node's `fetch`. An ES module import reads every export, and the getter of one
 * loads all of undici: 11 MB that a gateway does not need.
 */
export const http = process.getBuiltinModule("node:http");

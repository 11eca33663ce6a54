import path from "node:path";

/**
 * The address of the module `name` beside the module `address`. Its extension is the same, since
 * a clone runs sources and the published package what was compiled from them.
 */
export function siblingModule(address: string, name: string): URL {
  return new URL(`./${name}${path.extname(address)}`, address);
}

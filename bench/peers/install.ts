import { existsSync } from "node:fs";
import path from "node:path";
import { fetchBy, installPackages } from "../install.ts";

/** System requirements: a file that proves each, and the Debian package that contains it. */
const needed = [
  { file: "haproxy", debian: "haproxy" },
  { file: "nginx", debian: "nginx" },
  { file: "/usr/lib/nginx/modules/ngx_http_js_module.so", debian: "libnginx-mod-http-js" },
  { file: "wrk", debian: "wrk" },
  { file: "taskset", debian: "util-linux" },
];

function isThere(file: string): boolean {
  const folders = path.isAbsolute(file) ? [""] : [...(process.env.PATH ?? "").split(":")];
  return [...folders, "/usr/sbin"].some((folder) => existsSync(path.join(folder, file)));
}

/**
 * Installs missing peers from Debian packages and the npm registry.
 *
 * @throws Error with the command to run if this user may not install packages
 */
export function installPeers(): void {
  const missing = needed.filter(({ file }) => !isThere(file)).map(({ debian }) => debian);
  if (missing.length > 0) {
    const flags = ["install", "--yes", "--no-install-recommends", ...missing];
    if (process.getuid?.() !== 0) {
      throw new Error(`missing: ${missing.join(", ")}. Run: sudo apt-get ${flags.join(" ")}`);
    }
    fetchBy("apt-get", ["update"]);
    fetchBy("apt-get", flags);
  }
  installPackages(import.meta.dirname);
}

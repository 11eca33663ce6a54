import { spawnSync } from "node:child_process";
import { accessSync, existsSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const directory = fileURLToPath(new URL(".", import.meta.url));

/** What is needed from the system: a file that shows it, and Debian's package that brings it. */
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

function run(command: string, flags: string[]): void {
  console.error(`+ ${[command, ...flags].join(" ")}`);
  const { status } = spawnSync(command, flags, { stdio: ["ignore", "ignore", "inherit"] });
  if (status !== 0) throw new Error(`${command} failed; the peers cannot be had`);
}

/**
 * Makes sure that every peer is there: from Debian's packages and the npm registry.
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
    run("apt-get", ["update"]);
    run("apt-get", flags);
  }
  try {
    accessSync(path.join(directory, "node_modules", "fastify"));
  } catch {
    run("npm", ["ci", "--prefix", directory, "--no-audit", "--no-fund"]);
  }
}

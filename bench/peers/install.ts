import { existsSync } from "node:fs";
import path from "node:path";
import { fetchBy, installPackages, reasonOf } from "../install.ts";

/** Without these, nothing is measured. Without the others, their peers are left out. */
const essential: readonly string[] = ["wrk", "taskset"];

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

function installDebian(packages: readonly string[]): void {
  const flags = ["install", "--yes", "--no-install-recommends", ...packages];
  if (process.getuid?.() !== 0) {
    throw new Error(`missing: ${packages.join(", ")}. Run: sudo apt-get ${flags.join(" ")}`);
  }
  fetchBy("apt-get", ["update"]);
  fetchBy("apt-get", flags);
}

/**
 * Installs missing peers from Debian packages and the npm registry, as far as possible.
 *
 * @throws Error if an essential program is missing
 */
export function installPeers(): void {
  const missing = () => needed.filter(({ file }) => !isThere(file));
  const packages = missing().map(({ debian }) => debian);
  const steps = [() => installPackages(import.meta.dirname)];
  if (packages.length > 0) steps.push(() => installDebian(packages));
  for (const step of steps) {
    try {
      step();
    } catch (error) {
      console.error(reasonOf(error));
    }
  }
  const lacking = missing().filter(({ file }) => essential.includes(file));
  if (lacking.length > 0) throw new Error(`without ${lacking[0]?.file}, nothing can be measured`);
}

import { spawnSync } from "node:child_process";
import { cpus, totalmem } from "node:os";

function firstLine(command: string, flags: string[]): string {
  const { stdout, stderr } = spawnSync(command, flags, { encoding: "utf8" });
  return `${stdout}${stderr}`.split("\n")[0]?.trim() ?? "";
}

/** Machine and versions, one per line. */
export function describeMachine(): string[] {
  const [first, ...others] = cpus();
  return [
    `${others.length + 1} cores of ${first?.model.trim()}, ${Math.round(totalmem() / 2 ** 30)} GiB`,
    `Node.js ${process.version}`,
    firstLine("haproxy", ["-v"]).replace(/ https.*/, ""),
    firstLine("nginx", ["-v"]).replace("nginx version: ", ""),
  ];
}

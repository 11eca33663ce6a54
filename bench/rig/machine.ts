import { spawnSync } from "node:child_process";
import { cpus, totalmem } from "node:os";

function firstLine(command: string, flags: string[]): string {
  const { stdout, stderr } = spawnSync(command, flags, { encoding: "utf8" });
  return `${stdout}${stderr}`.split("\n")[0]?.trim() ?? "";
}

/** Prints what was found with the machine: as JSON, or as text. */
export function printFound(isJson: boolean, found: object, text: () => string): void {
  const machine = describeMachine();
  if (isJson) console.log(JSON.stringify({ machine, ...found }, undefined, 2));
  else console.log(`${machine.join("; ")}\n\n${text()}`);
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

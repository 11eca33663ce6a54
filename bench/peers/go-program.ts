import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fetchBy } from "../install.ts";

/** A program from the Go module proxy. */
export interface GoModule {
  readonly name: string;
  readonly module: string;
  readonly version: string;
  /** The package to build; by default the module's root. */
  readonly package?: string;
}

const folder = path.join(import.meta.dirname, "built");

/**
 * Builds a program unless it exists, and returns its path.
 *
 * @throws Error with the compiler's last line
 */
export function buildGo({ name, module, version, package: built = module }: GoModule): string {
  const program = path.join(folder, `${name}-${version}`);
  if (existsSync(program)) return program;
  const source = path.join(folder, name);
  mkdirSync(source, { recursive: true });
  writeFileSync(path.join(source, "go.mod"), `module bench\n\nrequire ${module} ${version}\n`);
  // An import makes Go resolve the program's own requirements too.
  writeFileSync(path.join(source, "import.go"), `package bench\n\nimport _ "${built}"\n`);
  console.error(`building ${name} ${version}, which takes minutes the first time`);
  fetchBy("go", ["build", "-mod=mod", "-o", program, built], source);
  return program;
}

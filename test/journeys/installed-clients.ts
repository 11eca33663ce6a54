/** Client libraries that a machine may have: `npm ci --prefix test/clients`. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import type { Test } from "tap";
import { PATIENCE_MS } from "../kit/eventually.ts";
import { type TestGateway, temporaryHome } from "../kit/gateway.ts";
import { columnsOf } from "../kit/queries.ts";
import { tokenOf } from "./staff.ts";

const directory = path.join(import.meta.dirname, "../clients");
const modules = path.join(directory, "node_modules");

export const noClients = existsSync(path.join(modules, ".package-lock.json"))
  ? false
  : "not installed: npm ci --prefix test/clients";

export async function fillUsers(gateway: TestGateway): Promise<void> {
  const root = await tokenOf(gateway, "root");
  const columns = columnsOf({ id: "int", name: "text" });
  await gateway.query({ CreateDatabase: { database: "main" } }, root);
  await gateway.query({ CreateTable: { database: "main", table: "users", columns } }, root);
  const values = [{ id: 1, name: "Alice" }];
  await gateway.query({ Insert: { database: "main", table: "users", values } }, root);
}

export class Workplace {
  readonly directory: string;
  readonly environment: Record<string, string>;

  constructor(t: Test, extra: Readonly<Record<string, string>> = {}) {
    this.directory = temporaryHome(t);
    symlinkSync(modules, path.join(this.directory, "node_modules"));
    writeFileSync(path.join(this.directory, "package.json"), '{ "private": true }');
    const node = path.dirname(process.execPath);
    const kept = Object.entries(process.env).flatMap(([name, value = ""]) =>
      name === "NODE_OPTIONS" || name.startsWith("npm_") ? [] : [[name, value]],
    );
    this.environment = {
      ...Object.fromEntries(kept),
      PATH: `${node}${path.delimiter}${process.env.PATH}`,
      HOME: this.directory,
      npm_config_offline: "true",
      ...extra,
    };
  }

  /** Runs a program. @returns its output @throws Error with its errors */
  async run(command: string, flags: readonly string[], input = ""): Promise<string> {
    const { directory: cwd, environment: env } = this;
    const child = spawn(command, flags, { cwd, env, timeout: 2 * PATIENCE_MS });
    child.stdin.end(input);
    const closed = once(child, "close");
    const [output, errors] = await Promise.all([text(child.stdout), text(child.stderr)]);
    await closed;
    if (child.exitCode !== 0) throw new Error(`${command} ended: ${errors}${output}`);
    return output;
  }
}

export function clientProgram(name: string): string {
  return path.join(directory, name);
}

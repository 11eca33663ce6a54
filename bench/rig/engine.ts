import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import * as z from "zod";
import { cleanEnvironment } from "../../test/kit/process.ts";
import { Program } from "./program.ts";

const program = fileURLToPath(new URL("../../bin/gatehouse.js", import.meta.url));
const password = "correct horse";
const loginShape = z.object({ token: z.string() });

/** Starts a gateway over a database, with authentication off. */
export async function startOpenGateway(
  url: string,
  directory: string,
  name = "open",
): Promise<{ readonly program: Program; readonly address: string }> {
  const home = makeHome(directory, name);
  const auth = "[auth]\nenabled = false\n[mcp]\nenabled = false\n";
  writeFileSync(path.join(home, "gateway.toml"), `${auth}[upstream]\nurl = "${url}"\n`);
  const flags = [program, "serve", "--port", "0"];
  const running = new Program(process.execPath, flags, undefined, cleanEnvironment(home));
  return { program: running, address: await running.printed(/"url":"(http:[^"]+)"/) };
}

/** Starts a gateway over a database and logs in. */
export async function startGateway(
  database: string,
  directory: string,
): Promise<{ readonly program: Program; readonly url: string; readonly token: string }> {
  const home = makeHome(directory, "gateway");
  writeFileSync(
    path.join(home, "gateway.toml"),
    `[upstream]\nurl = "${database}"\n[audit]\nfile = "${home}/audit.log"\n[mcp]\nenabled = false\n`,
  );
  const env = { ...cleanEnvironment(home), GATEHOUSE_ADMIN_PASSWORD: password };
  const flags = [program, "serve", "--port", "0"];
  const running = new Program(process.execPath, flags, undefined, env);
  const url = await running.printed(/"url":"(http:\/\/127\.0\.0\.1:\d+)"/);
  const response = await fetch(`${url}/login`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ username: "admin", password }),
  });
  const { token } = loginShape.parse(await response.json());
  return { program: running, url, token };
}

function makeHome(directory: string, name: string): string {
  const home = path.join(directory, name);
  mkdirSync(home, { mode: 0o700 });
  return home;
}

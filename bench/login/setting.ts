import { writeFile } from "node:fs/promises";
import path from "node:path";
import { hashPassword } from "../../src/core/identity/password.ts";
import { Service } from "../../test/kit/process.ts";
import { openDirectory, openUpstream } from "../rig/opened.ts";

export const PASSWORD = "benchmark password";

const configured = { memory: 65_536, time: 3, parallelism: 4 };
/** Common in other systems, for imported users. */
const imported = { memory: 19_456, time: 2, parallelism: 1 };

/** A gateway with default costs and users of every kind. */
interface Setting {
  readonly url: string;
  readonly service: Service;
}

async function accessFile(withImported: boolean): Promise<string> {
  const user = (name: string, lines = "") => `[[users]]\nusername = "${name}"\n${lines}\n`;
  const hash = async (costs: typeof configured) =>
    `password_hash = "${await hashPassword(PASSWORD, costs)}"\n`;
  const own = await hash(configured);
  return [
    user("known", own),
    user("disabled", `${own}disabled = true\n`),
    user("machine"),
    withImported ? user("imported", await hash(imported)) : "",
    '[[acl]]\nusername = "known"\ndatabase = "*"\nrole = "Owner"\n',
  ].join("\n");
}

/**
 * Starts a gateway with an upstream that responds at once, until the stack is disposed.
 *
 * @param withImported true if one user's hash has lower costs than configured
 * @param mcp lines of `[mcp]`
 */
export async function openSetting(
  opened: AsyncDisposableStack,
  { withImported, mcp = "" }: { withImported: boolean; mcp?: string },
): Promise<Setting> {
  const home = openDirectory(opened);
  const port = await openUpstream(opened);
  const limits = "max_failures_per_user_and_address = 1000000\nmax_failures_per_address = 1000000";
  const config = `[auth]\n${limits}\n[upstream]\nurl = "http://127.0.0.1:${port}"
[audit]\nfile = "audit.log"\n[mcp]\n${mcp}\n`;
  await writeFile(path.join(home, "gateway.toml"), config);
  const file = path.join(home, "access_control.toml");
  await writeFile(file, await accessFile(withImported), { mode: 0o600 });
  const service = new Service(home, ["serve", "--port", "0"]);
  opened.defer(async () => void (await service.stop("SIGKILL")));
  const { url } = await service.logged(({ msg }) => String(msg).startsWith("listening on"));
  return { url: String(url), service };
}

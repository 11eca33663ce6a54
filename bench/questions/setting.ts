/** A gateway with the shop. */
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { z } from "zod";
import { Service } from "../../test/kit/process.ts";
import { statelessCall } from "../../test/mcp/messages.ts";
import { openDirectory } from "../rig/opened.ts";
import type { Ask } from "./play.ts";
import type { Shop } from "./shop.ts";
import { database, fill } from "./tables.ts";

const PASSWORD = "correct horse";
const cheapCosts = "argon2_memory_cost = 64\nargon2_time_cost = 1\nargon2_parallelism = 1";

/** A gateway whose user `model` may read and write the shop. */
export interface Setting {
  readonly url: string;
  readonly token: string;
  readonly rows: number;
}

const loggedIn = z.object({ token: z.string() });

/** Posts JSON and returns the response. @throws Error unless it succeeds */
async function send(url: string, content: object, token?: string): Promise<unknown> {
  const headers: Record<string, string> = { "content-type": "application/json" };
  if (token !== undefined) headers.authorization = `Bearer ${token}`;
  const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(content) });
  const text = await response.text();
  if (!response.ok) throw new Error(`${url}: ${response.status} ${text.slice(0, 500)}`);
  return JSON.parse(text);
}

/** Starts a gateway with its own engine and fills the shop, until the stack is disposed. */
export async function openSetting(opened: AsyncDisposableStack, shop: Shop): Promise<Setting> {
  const home = openDirectory(opened);
  await writeFile(path.join(home, "gateway.toml"), `[auth]\n${cheapCosts}\n`);
  const env = { GATEHOUSE_ADMIN_PASSWORD: PASSWORD };
  const service = new Service(home, ["serve", "--port", "0"], env);
  opened.defer(async () => void (await service.stop("SIGTERM")));
  const listening = await service.logged(({ msg }) => String(msg).startsWith("listening on"));
  const url = String(listening.url);
  const login = async (username: string) => {
    const answer = await send(`${url}/login`, { username, password: PASSWORD });
    return loggedIn.parse(answer).token;
  };
  const root = await login("admin");
  const rows = await fill(shop, async (body) => void (await send(`${url}/query`, body, root)));
  const user = { username: "model", password: PASSWORD, role: "ReadWrite", database };
  await send(`${url}/api/users`, user, root);
  return { url, token: await login("model"), rows };
}

const answered = z.object({
  result: z.object({
    isError: z.boolean().optional(),
    content: z.array(z.object({ text: z.string() })),
    structuredContent: z.unknown().optional(),
  }),
});

/** Calls tools as `model`; a refused one has the result `{"isError": true}`. */
export function askAt({ url, token }: Setting): Ask {
  return async ({ tool, arguments: args }) => {
    const call = statelessCall("tools/call", { name: tool, arguments: args });
    const headers = { ...call.headers, authorization: `Bearer ${token}` };
    const response = await fetch(`${url}/mcp`, { method: "POST", headers, body: call.body });
    const { result } = answered.parse(await response.json());
    const text = result.content[0]?.text ?? "";
    return { text, result: result.isError === true ? { isError: true } : result.structuredContent };
  };
}

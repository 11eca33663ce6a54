import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import * as z from "zod";
import { Service } from "../../test/kit/process.ts";
import { everyTool } from "../../test/mcp/proxied.ts";
import { clientTools } from "./client-tools.ts";
import { inputTools } from "./input-tools.ts";

export const username = "admin";
export const password = "conformance password";

export const clientId = "conformance";

interface RunningGateway {
  readonly url: string;
  readonly token: string;
}

const loginAnswer = z.object({ token: z.string() });

/** Rules that let the administrator call every tool of the suite. */
function toolTable(): string {
  const others = [...clientTools, ...inputTools].map((name) => ({
    name,
    permission: "SELECT",
    database: "main",
    database_argument: undefined,
  }));
  return [...everyTool, ...others]
    .map(({ name, permission, database, database_argument: argument }) => {
      const where =
        database === undefined ? `database_argument = "${argument}"` : `database = "${database}"`;
      return `[[mcp.tools]]\nname = "${name}"\npermission = "${permission}"\n${where}\n`;
    })
    .join("");
}

function configuration(upstream: string | undefined): string {
  const mcp = upstream === undefined ? "" : `upstream = "${upstream}"`;
  const client = [
    "[[mcp.clients]]",
    `client_id = "${clientId}"`,
    'client_name = "Conformance suite"',
    'redirect_uris = ["http://127.0.0.1/callback"]',
  ];
  return ["[mcp]", mcp, ...client, upstream === undefined ? "" : toolTable()].join("\n");
}

/**
 * Starts a gateway and logs in.
 *
 * @param upstream the MCP server for `/mcp`; by default the embedded one
 */
export async function startGateway(
  upstream: string | undefined,
  opened: AsyncDisposableStack,
): Promise<RunningGateway> {
  const home = await mkdtemp(path.join(tmpdir(), "gatehouse-conformance-"));
  opened.defer(() => rm(home, { recursive: true, force: true }));
  await writeFile(path.join(home, "gateway.toml"), configuration(upstream));
  const env = { GATEHOUSE_ADMIN_PASSWORD: password };
  const service = new Service(home, ["serve", "--port", "0"], env);
  opened.defer(async () => void (await service.stop()));
  const started = await service.logged(({ msg }) => String(msg).startsWith("listening on"));
  const url = String(started.url);
  const answer = await fetch(`${url}/login`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ username, password }),
  });
  return { url, token: loginAnswer.parse(await answer.json()).token };
}

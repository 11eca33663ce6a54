/** The recipes of docs/mcp-clients.md. */
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { startGateway } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { fillUsers, noClients, Workplace } from "./installed-clients.ts";
import { staffedHome, tokenOf } from "./staff.ts";

const page = readFileSync(new URL("../../docs/mcp-clients.md", import.meta.url), "utf8");
const recipes = Array.from(
  page.matchAll(/^### .*?\(`(\S+?)`.*?\)\n.*?^```(js|sh)\n(.*?)^```$/gms),
  ([, name = "", language = "", code = ""]) => ({ name, language, code }),
);
const [, earlier = ""] = /^Version 1 .*?^```js\n(.*?)^```$/ms.exec(page) ?? [];
const code = recipes[0]?.code.replace(/^.*\n/, earlier) ?? "";
recipes.push({ name: "@modelcontextprotocol/sdk", language: "js", code });

t.test(
  "the recipe of every installed client works as documented",
  { skip: noClients || nightly.skip },
  async (t) => {
    const home = await staffedHome(t, ["root * Owner", "robot main ReadOnly"]);
    const gateway = await startGateway(t, { home });
    await fillUsers(gateway);
    const workplace = new Workplace(t, {
      GATEHOUSE_URL: `${gateway.url}/mcp`,
      GATEHOUSE_TOKEN: await tokenOf(gateway, "robot"),
    });
    for (const { name, language, code } of recipes) {
      const script = path.join(workplace.directory, "example.mjs");
      writeFileSync(script, code);
      const flags = language === "js" ? [script] : ["-c", code];
      const output = await workplace.run(language === "js" ? "node" : "sh", flags);
      t.match(output, "Alice", name);
      t.notMatch(output, /\b(?:insert|drop_table)\b/, "a reader is listed what reads");
    }
    const shown = recipes.map(({ name }) => name);
    t.strictSame(shown, [
      "@modelcontextprotocol/client",
      "@langchain/mcp-adapters",
      "@openai/agents",
      "@ai-sdk/mcp",
      "@mastra/mcp",
      "@modelcontextprotocol/inspector",
      "@modelcontextprotocol/sdk",
    ]);
  },
);

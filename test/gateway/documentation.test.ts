import { readFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { configurationSchema } from "../../src/config/schema.ts";
import { routeTable } from "../../src/gateway/routes.ts";
import { queryRefusals } from "../../src/query/refusal.ts";
import { refusals } from "../../src/refusal.ts";

const text = readFileSync(path.join(import.meta.dirname, "../../docs/http.md"), "utf8");

function rows(first: RegExp): string[][] {
  return text
    .split("\n")
    .filter((line) => line.startsWith("| "))
    .map((line) => line.slice(2, -2).split(" | "))
    .filter(([cell = ""]) => first.test(cell));
}

t.test("the document lists every code with its status and message, and no other", async (t) => {
  const documented = rows(/^`[a-z0-9_]+`$/)
    .filter(([, status = ""]) => /^\d{3}$/.test(status))
    .map(([code = "", status, message = ""]) => [code.slice(1, -1), Number(status), message]);
  const expected = [
    ...Object.entries(refusals).map(([code, [status, message]]) => [
      code,
      status,
      `\`${message}\``,
    ]),
    ...Object.entries(queryRefusals).map(([code, meaning]) => [code, 400, meaning]),
  ];
  const byCode = (a: unknown[], b: unknown[]) => String(a[0]).localeCompare(String(b[0]));
  t.strictSame(documented.sort(byCode), expected.sort(byCode));
});

t.test("a code means one thing, whichever table it is in", async (t) => {
  for (const code of Object.keys(queryRefusals)) t.notOk(code in refusals, code);
});

t.test("the document lists every route, and no other", async (t) => {
  const documented = rows(/^`[A-Z]+ \/\S*`$/).map(([route = ""]) =>
    route.slice(1, -1).replace(/<(\w+)>/g, ":$1"),
  );
  const served = routeTable(configurationSchema.parse({})).flatMap(({ pattern, methods }) =>
    Array.from(methods.keys(), (method) => `${method} ${pattern}`),
  );
  t.strictSame(documented.sort(), served.sort());
});

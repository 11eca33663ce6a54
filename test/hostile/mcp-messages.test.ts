import t from "tap";
import { statelessCall } from "../mcp/messages.ts";
import { isRefusal, openMcpSite, post } from "./mcp-site.ts";

const foreign = await openMcpSite(t);
const embedded = await openMcpSite(t, true);

const lookArguments = '{"database":"main"}';
const selectArguments = '{"database":"main","from":"t","columns":["*"]}';
const places = [
  { what: "a server behind", site: foreign, tool: "ask", args: lookArguments },
  { what: "the embedded server", site: embedded, tool: "select", args: selectArguments },
];

/** A call in JSON that a test spells as it likes. */
function call(params: string, more = '"id":1,', method = '"tools/call"'): string {
  return `{"jsonrpc":"2.0",${more}"method":${method},"params":${params}}`;
}

/** Messages around a call that are none, or more than one. */
function envelopes(params: string): Record<string, string> {
  const whole = call(params);
  const ids = ["null", "{}", "[1]", "true", "1.5", "1e400", "9007199254740993", "-1e-1"];
  const versions = ['"2.0 "', "2.0", '"1.0"', '"2"', "null", '["2.0"]'];
  const twice = ["method", "params", "id", "jsonrpc"].flatMap((key) => {
    const escaped = `\\u00${key.charCodeAt(0).toString(16)}${key.slice(1)}`;
    return [key, escaped].map((again) => `{"${again}":"ping",${whole.slice(1)}`);
  });
  const inOtherCase = ["Method", "METHOD", "Params", "ID", "JsonRpc", "p\u0430rams", "method "];
  return {
    "no request but a notification": call(params, ""),
    "no version": whole.replace('"jsonrpc":"2.0",', ""),
    "a request and an answer": whole.replace("{", '{"result":{},'),
    "a request and an error": whole.replace("{", '{"error":{"code":1,"message":"x"},'),
    "an answer with a call in it": `{"jsonrpc":"2.0","id":1,"result":{},"params":${params}}`,
    "an array of one": `[${whole}]`,
    "an array of arrays": `[[${whole}]]`,
    "two, one behind the other": `${whole}\n${whole}`,
    "a call behind a NUL": `${whole}\0${whole}`,
    "an event": `data: ${whole}\n\n`,
    "JSON with a comment": `/**/${whole}`,
    "a call as a text": JSON.stringify(whole),
    ...Object.fromEntries(ids.map((id) => [`the id ${id}`, call(params, `"id":${id},`)])),
    ...Object.fromEntries(
      versions.map((text) => [`version ${text}`, whole.replace('"2.0"', text)]),
    ),
    ...Object.fromEntries(twice.map((text) => [text.slice(0, 30), text])),
    ...Object.fromEntries(
      inOtherCase.map((key) => [`${key} beside`, whole.replace("{", `{"${key}":{},`)]),
    ),
  };
}

/** What a method may not be called. */
const methods = [
  ...["Tools/Call", "TOOLS/CALL", "tools/call ", " tools/call", "tools/call\\u0000", "tools//call"],
  ...["/tools/call", "tools/call/", "rpc.tools/call", "tools.call", "tools\\\\call", "tool/call"],
  ...["tools\\uff0fcall", "tools/ca\\u217cl", "tools/call\\u200b", "t\\u043eols/call", "", "*"],
  ...["notifications/tools/call", "notifications/cancelled", "sampling/createMessage", "__proto__"],
  ...["roots/list", "elicitation/create", "constructor", "$/tools/call", "tools/call?x"],
];

/** What a tool may not be called. */
function names(tool: string): string[] {
  const wide = Array.from(tool, (letter) => String.fromCodePoint(letter.charCodeAt(0) + 0xfee0));
  return [
    ...[tool.toUpperCase(), `${tool} `, ` ${tool}`, `${tool}\0`, `${tool}\u200b`, `\ufeff${tool}`],
    ...[`${tool}/`, `../${tool}`, `${tool}?x`, `${tool}.x`, wide.join(""), `${tool}\u0301`, ""],
    ...["__proto__", "constructor", "toString", "hasOwnProperty", "secret", "*", "null"],
  ];
}

const otherNames = ["1", "null", "true", '["ask"]', '{"name":"ask"}'];

/** Names of databases that are not that of `main`, and yet like it, or more than it. */
const databases = [
  ...[
    '"side"',
    '"Main"',
    '"MAIN"',
    '"main "',
    '" main"',
    '"main\\u0000"',
    '"main\\n"',
    '"*"',
    '""',
  ],
  ...['"main/../side"', '"main,side"', '"main;side"', '"side\\u0000main"', '"\\uff4dain"'],
  ...['"ma\\u0131n"', '"main\\u200b"', '"main.side"', '["main"]', '["main","side"]', "null", "1"],
  ...["true", "{}", '{"database":"main"}', '{"$ne":""}', `"${"m".repeat(64)}"`],
];

/** What may not stand beside the database. */
const besides = [
  ...['"database":"side"', '"d\\u0061tabase":"side"', '"Database":"side"', '"DATABASE":"side"'],
  ...['"databa\\u017fe":"side"'],
];

for (const { what, site, tool, args } of places) {
  const good = `{"name":"${tool}","arguments":${args}}`;

  t.test(`what is no plain call does nothing in ${what}`, async (t) => {
    const { witness, alice } = site;
    const bodies = envelopes(good);
    for (const method of methods) bodies[`method ${method}`] = call(good, '"id":1,', `"${method}"`);
    for (const params of ["null", "[]", `[${good}]`, '"x"', "1", "{}", `{"params":${good}}`]) {
      bodies[`params ${params}`] = call(params);
    }
    const deep = `${"[".repeat(80)}${"]".repeat(80)}`;
    bodies["deep params"] = call(good.replace("{", `{"x":${deep},`));
    for (const [name, body] of Object.entries(bodies)) {
      const answer = await post(site, alice, body);
      t.ok(isRefusal(answer), `${name}: ${answer.status}`);
      t.notMatch(answer.body.toString(), /"content":\[\]/, name);
    }
    t.strictSame(witness.take(), []);
    t.notOk(isRefusal(await post(site, alice, call(good))), "and a plain one is taken");
    t.equal(witness.take().length, 1);
  });

  t.test(`a tool has one name in ${what}`, async (t) => {
    const { witness, alice } = site;
    for (const name of [...names(tool).map((text) => JSON.stringify(text)), ...otherNames]) {
      const body = call(`{"name":${name},"arguments":${args}}`);
      t.ok(isRefusal(await post(site, alice, body)), name);
    }
    for (const key of ["name", "n\\u0061me", "Name", "NAME", "arguments", "Arguments", "_META"]) {
      const body = call(good.replace("{", `{"${key}":"change",`));
      t.ok(isRefusal(await post(site, alice, body)), `${key} beside it`);
    }
    t.ok(isRefusal(await post(site, alice, call(`{"arguments":${args}}`))), "none");
    t.strictSame(witness.take(), []);
  });

  t.test(`a database has one name, in one place, in ${what}`, async (t) => {
    const { witness, alice } = site;
    for (const name of databases) {
      const body = call(good.replace('"main"', name));
      t.ok(isRefusal(await post(site, alice, body)), name);
    }
    const own = '"database":"main"';
    for (const beside of besides) {
      for (const both of [`${own},${beside}`, `${beside},${own}`]) {
        t.ok(isRefusal(await post(site, alice, call(good.replace(own, both)))), both);
      }
    }
    for (const wrapped of [`{"arguments":${args}}`, `[${args}]`, JSON.stringify(args), "null"]) {
      const body = call(`{"name":"${tool}","arguments":${wrapped}}`);
      t.ok(isRefusal(await post(site, alice, body)), wrapped);
    }
    t.strictSame(witness.take(), []);
    const escaped = good.replace('"database":"main"', '"d\\u0061tabase":"m\\u0061in"');
    t.notOk(isRefusal(await post(site, alice, call(escaped))), "however it is escaped");
    t.equal(witness.take().length, 1);
  });

  t.test(`headers cannot make another call of it in ${what}`, async (t) => {
    const { witness, alice } = site;
    const { body, headers } = statelessCall("tools/call", JSON.parse(good));
    const wrong: Record<string, string | string[]>[] = [
      { "mcp-name": "change" },
      { "mcp-name": [tool, tool] },
      { "mcp-name": `=?base64?${Buffer.from("change").toString("base64")}?=` },
      { "mcp-name": `=?base64?${Buffer.from(tool).toString("base64")}` },
      { "mcp-name": tool.toUpperCase() },
      { "mcp-method": "tools/list" },
      { "mcp-method": ["tools/call", "tools/call"] },
      { "mcp-protocol-version": "2025-11-25" },
      { "mcp-protocol-version": ["2026-07-28", "2026-07-28"] },
      { "mcp-protocol-version": "2026-07-28 " },
      { "mcp-protocol-version": "" },
      { "mcp-protocol-version": "2024-11-05, 2026-07-28" },
      { "content-type": "application/json; charset=utf-16" },
      { "content-type": "text/plain" },
      { "content-encoding": "gzip" },
    ];
    for (const odd of wrong) {
      const answer = await post(site, alice, body, { ...headers, ...odd });
      const isTrimmed = odd["mcp-protocol-version"] === "2026-07-28 ";
      t.equal(isRefusal(answer), !isTrimmed, JSON.stringify(odd));
    }
    t.ok(witness.take().length <= 1);
  });
}

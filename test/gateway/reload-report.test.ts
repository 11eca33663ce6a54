import t from "tap";
import { grant, user } from "../access/kit.ts";
import { startGateway } from "../kit/gateway.ts";

t.test(
  "a reload that changes very many records names a hundred and counts the others",
  async (t) => {
    const gateway = await startGateway(t);
    const users = Array.from({ length: 150 }, (_, at) => user(`user${at}`)).join("");
    const strangers = Array.from({ length: 101 }, (_, at) => grant(`gone${at}`, "main", "Owner"));
    await gateway.edit((text) => `${text}\n${users}${strangers.join("")}`);
    const line = await gateway.service.logged(({ msg }) => msg === "access file reloaded");
    t.match(line, { more: { usersAdded: 50, grantsAdded: 1 } });
    t.equal([line.usersAdded].flat().length, 100);
    const warning = await gateway.service.logged(({ names }) => names !== undefined);
    t.match(warning, { more: { names: 1 } });
  },
);

t.test("each mistake of a refused access file is a line of the log", async (t) => {
  const gateway = await startGateway(t);
  await gateway.edit(
    (text) => `${text}\n${grant("a", "main", "Writer")}${grant("b", "a b", "Owner")}`,
  );
  const refused = /^access file refused/;
  const about = (key: string) =>
    gateway.service.logged(
      ({ msg, reason }) => refused.test(String(msg)) && String(reason).startsWith(`\`${key}\``),
    );
  const [role, database] = await Promise.all([about("role"), about("database")]);
  t.equal(Number(database.line) - Number(role.line), 4);
});

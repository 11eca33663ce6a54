/** Orders of a shop: 20 of each of 2,000 customers, each with five lines. */
export const tables = `create schema main;
  create table main.orders (id int primary key, customer_id int not null, region int not null,
    status text not null, ordered_on date not null, total int not null);
  create table main.order_lines (id int primary key, order_id int not null references main.orders,
    position int not null, product text not null, quantity int not null, unit_price int not null);
  create table main.salaries (id int primary key, amount int not null);
  insert into main.orders select i, 1 + i % 2000, i % 50,
    (array['open', 'packed', 'sent', 'paid', 'returned'])[1 + i % 7 % 5],
    date '2026-01-01' + i % 300, 100 + i::bigint * 7919 % 90000 from generate_series(1, 40000) as i;
  insert into main.order_lines select i, 1 + i % 40000, 1 + i / 40000, 'product ' || i * 31 % 500,
    1 + i % 9, 10 + i::bigint * 7919 % 9000 from generate_series(0, 199999) as i;
  create index on main.orders (status, id);
  create index on main.orders (customer_id);
  create index on main.orders (region);
  create index on main.order_lines (order_id);
  create role "ReadWrite";
  grant usage on schema main to "ReadWrite";
  grant select on main.orders, main.order_lines to "ReadWrite";
  create role postgraphile login noinherit;
  grant "ReadWrite" to postgraphile`;

/** The tables that the users may read; `salaries` is not one. */
export const granted = ["orders", "order_lines"];
export const DATABASE = "shop";

/** The same request to each system, and as SQL. */
export interface Page {
  readonly name: string;
  readonly gatehouse: object;
  readonly postgraphile: string;
  readonly prest: string;
  readonly sql: string;
}

const ofOrder = ["id", "status", "ordered_on", "total"];
const ofLine = ["position", "product", "quantity", "unit_price"];
const joined = [
  ...ofOrder.map((name) => `orders.${name}`),
  ...ofLine.map((name) => `order_lines.${name}`),
];

export const pages: readonly Page[] = [
  {
    name: "50 orders of a status, in order",
    gatehouse: {
      from: "orders",
      columns: ["id", "customer_id", "region", "status", "ordered_on", "total"],
      where: { column: "status", cmp: "=", value: "open" },
      order_by: { column: "id" },
      limit: 50,
    },
    postgraphile: `{ allOrders(condition: {status: "open"}, orderBy: [ROW_ID_ASC], first: 50) {
      nodes { id: rowId customer_id: customerId region status ordered_on: orderedOn total } } }`,
    prest:
      "orders?_select=id,customer_id,region,status,ordered_on,total&status=open" +
      "&_order=id&_page=1&_page_size=50",
    sql: `select id, customer_id, region, status, ordered_on, total from main.orders
      where status = 'open' order by id limit 50`,
  },
  {
    name: "20 orders of a customer, each with its 5 lines",
    gatehouse: {
      from: "orders",
      columns: ofOrder,
      where: { column: "customer_id", cmp: "=", value: 7 },
      order_by: { column: "id" },
      limit: 20,
      include: [
        {
          as: "lines",
          table: "order_lines",
          on: "order_lines.order_id = orders.id",
          columns: ofLine,
          order_by: { column: "id" },
        },
      ],
    },
    postgraphile: `{ allOrders(condition: {customerId: 7}, orderBy: [ROW_ID_ASC], first: 20) { nodes {
      id: rowId status ordered_on: orderedOn total
      lines: orderLinesByOrderId(orderBy: [ROW_ID_ASC]) {
        nodes { position product quantity unit_price: unitPrice } } } } }`,
    // It has no nested rows, so it repeats each order for its lines. A limit would count lines.
    prest:
      `orders?_select=${joined}&_join=inner:main.order_lines:order_lines.order_id:$eq:orders.id` +
      "&orders.customer_id=7&_order=orders.id,order_lines.id",
    sql: `select ${joined} from main.orders join main.order_lines on order_id = orders.id
      where customer_id = 7 order by orders.id, order_lines.id`,
  },
  {
    name: "number and sum of 800 orders by status",
    gatehouse: {
      from: "orders",
      where: { column: "region", cmp: "=", value: 7 },
      group_by: ["status"],
      aggregate: [
        { fn: "count", as: "count" },
        { fn: "sum", column: "total", as: "sum" },
      ],
      order_by: { column: "status" },
    },
    // It counts distinct values only, and has no order.
    postgraphile: `{ allOrders(condition: {region: 7}) {
      groupedAggregates(groupBy: [STATUS]) { keys sum { total } distinctCount { rowId } } } }`,
    prest: "orders?_count=*&_select=status,sum(total)&_groupby=status&region=7&_order=status",
    sql: `select status, count(*)::int, sum(total)::int from main.orders where region = 7
      group by status order by status`,
  },
];

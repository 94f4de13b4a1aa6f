-- A refund that was sent leaves two dead rows behind, and their entries stand at the very front of the indexes that
-- feeders, scouts and recovery read. By default they are cleared when a fifth of the table is dead: after a million
-- sends of ten million rows, and until then every look at what is due steps over all of them.
--
-- 2 % is a tenth of that. A vacuum reads all indexes of the table whole, so what it costs grows with the rows as well;
-- between two of them one refund is sent for each hundred that are kept.
-- Without the second setting vacuum would leave the indexes alone, since so few pages are touched: all that died lies
-- together, where the newest rows are.
alter table refundd.refunds set (autovacuum_vacuum_scale_factor = 0.02, vacuum_index_cleanup = on);

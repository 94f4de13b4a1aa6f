-- The legal moves, kept by the database too, so that no bug and no hand-written update can take a
-- refund where it must not go. The same table stands in src/refund/state.rs; a test holds them equal.
create function refundd.move_is_legal(old_state text, new_state text) returns boolean
language sql immutable parallel safe as $$
    select (old_state, new_state) in (
        ('ready', 'sending'), ('ready', 'cancelled'), ('ready', 'failed'),
        ('sending', 'ready'), ('sending', 'accepted'), ('sending', 'unknown'), ('sending', 'review'),
        ('sending', 'succeeded'), ('sending', 'failed'),
        ('accepted', 'review'), ('accepted', 'succeeded'), ('accepted', 'failed'),
        ('unknown', 'ready'), ('unknown', 'sending'), ('unknown', 'accepted'), ('unknown', 'review'),
        ('unknown', 'succeeded'), ('unknown', 'failed'),
        ('review', 'ready'), ('review', 'succeeded'), ('review', 'failed'), ('review', 'cancelled'),
        ('failed', 'ready')
    )
$$;

create function refundd.only_legal_moves() returns trigger language plpgsql as $$
begin
    if not refundd.move_is_legal(old.state, new.state) then
        raise exception 'refund % cannot move from % to %', old.id, old.state, new.state
            using errcode = 'RD002', hint = 'The legal moves are listed in refundd.move_is_legal.';
    end if;
    return new;
end $$;

create trigger refunds_make_only_legal_moves before update on refundd.refunds
    for each row when (old.state is distinct from new.state)
    execute function refundd.only_legal_moves();

create function refundd.refunds_are_never_deleted() returns trigger language plpgsql as $$
begin
    raise exception 'refundd.refunds is kept for ever: % is refused', lower(tg_op)
        using errcode = 'RD002', hint = 'A refund_ref is unique for ever; cancel a refund that should not be sent.';
end $$;

create trigger refunds_are_never_deleted before delete or truncate on refundd.refunds
    for each statement execute function refundd.refunds_are_never_deleted();

create function refundd.what_is_owed_never_changes() returns trigger language plpgsql as $$
begin
    raise exception 'refund %: what is owed, to whom and under which key cannot be changed once saved', old.id
        using errcode = 'RD002', hint = 'Cancel this refund and save another under its own refund_ref.';
end $$;

create trigger refunds_keep_what_is_owed before update on refundd.refunds
    for each row when (
        old.id is distinct from new.id or old.refund_ref is distinct from new.refund_ref or old.channel is distinct from new.channel
        or old.payment_ref is distinct from new.payment_ref or old.amount_minor is distinct from new.amount_minor
        or old.currency is distinct from new.currency or old.request_id is distinct from new.request_id
        or old.payload is distinct from new.payload or old.created_at is distinct from new.created_at)
    execute function refundd.what_is_owed_never_changes();

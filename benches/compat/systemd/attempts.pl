# Tries what the unit of refundd forbids. Prints each attempt with the number of the error that it met, or 0. hardening.rs reads it.
use strict;
use POSIX ();
use Socket;

# perl-base has no names for system calls.
my %calls = (x86_64 => { mmap => 9, personality => 135, unshare => 272 }, aarch64 => { mmap => 222, personality => 92, unshare => 97 });
my $call = $calls{ (POSIX::uname())[4] } or die "no numbers of system calls for this machine\n";

sub attempt {
    my ($name, $does) = @_;
    $! = 0;
    my $done = $does->();
    printf "%s %d\n", $name, $done ? 0 : $!;
}

# The error of a child that ends with the number of its own.
sub in_a_child {
    my $does = shift;
    my $child = fork // return 0;
    if (!$child) { $! = 0; POSIX::_exit($does->() ? 0 : $!) }
    waitpid $child, 0;
    $! = $? >> 8;
    return $? == 0;
}

$| = 1;
attempt 'exec', sub { in_a_child(sub { exec '/usr/bin/true' }) };
attempt 'port', sub {
    socket my $socket, AF_INET, SOCK_STREAM, 0 or return 0;
    return bind $socket, sockaddr_in(0, INADDR_LOOPBACK);
};
attempt 'write', sub { open my $file, '>', '/var/lib/refundd-attempts/file' };
attempt 'home', sub { opendir my $folder, '/home/somebody' };
attempt 'tmp', sub { -e '/tmp/of-others' };
attempt 'processes', sub { -e '/proc/1/status' };
attempt 'kernel', sub { -e '/proc/meminfo' };
attempt 'priority', sub { setpriority 0, 0, 5 };
attempt 'code', sub { syscall($call->{mmap}, 0, 4096, 7, 0x22, -1, 0) != -1 };
attempt 'setuid', sub {
    open my $file, '>', '/tmp/own' or return 0;
    return chmod 04755, '/tmp/own';
};
# AF_VSOCK: a family that needs no right.
attempt 'family', sub { socket my $socket, 40, SOCK_STREAM, 0 };
attempt 'namespace', sub { in_a_child(sub { syscall($call->{unshare}, 0x10000000) == 0 }) };
attempt 'personality', sub { syscall($call->{personality}, 8) != -1 };
print "done\n";
